"""What a pipeline tells about itself: counts and times, and traces of where the time went."""

from gpufeed.observe.stats import FeedStats

__all__ = ["FeedStats"]
