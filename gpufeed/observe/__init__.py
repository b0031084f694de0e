"""What a pipeline tells about itself: counts and times, and traces of where the time went."""

from gpufeed.observe.stats import FeedStats
from gpufeed.reader.padding import BatchStats

__all__ = ["BatchStats", "FeedStats"]
