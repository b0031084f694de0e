"""What a feeding pipeline measures about itself, and the one sentence that follows from it."""

from __future__ import annotations

from dataclasses import dataclass

from gpufeed.reader.padding import BatchStats

__all__ = ["FeedStats"]


@dataclass
class FeedStats:
    """Counts and times of one feed reader, since it was made.

    ``read_s``, ``stage_s`` and ``blocked_s`` pass on the producer's thread and add up to its life;
    ``wait_s`` and ``compute_s`` pass on the consumer's and add up to the loop. With ``prefetch=0``
    both are the same thread.

    Attributes:
        num_steps: Steps delivered; one feed each, or one feed a device.
        num_samples: Samples in them.
        nbytes: Bytes of their slabs.
        read_s: Seconds the producer waited for the reader.
        stage_s: Seconds it collated and started transfers.
        blocked_s: Seconds it waited for the consumer to take something, or for a device to be done
            with a page-locked slab.
        wait_s: Seconds the consumer waited for a feed.
        compute_s: Seconds the consumer spent between two feeds.
        num_skipped: Samples that stages with ``on_error`` left out, in the last pass.
        num_held: Delivered feeds that were not taken back yet, the current ones included.
        slab_nbytes: Bytes of the slabs of all places.
        pinned_nbytes: Bytes of page-locked host memory, slabs and what is shared with processes.
        leased_nbytes: Bytes that the ``num_held`` feeds keep from being used again.
        num_slabs: Slabs made since the feeder was built; flat in steady state.
        batches: What the `gpufeed.batch` nearest to the feeder has made, those ahead of the loop
            included: tokens, padding, fill. None where there is none.
    """

    num_steps: int = 0
    num_samples: int = 0
    nbytes: int = 0
    read_s: float = 0.0
    stage_s: float = 0.0
    blocked_s: float = 0.0
    wait_s: float = 0.0
    compute_s: float = 0.0
    num_skipped: int = 0
    num_held: int = 0
    slab_nbytes: int = 0
    pinned_nbytes: int = 0
    leased_nbytes: int = 0
    num_slabs: int = 0
    batches: BatchStats | None = None

    @property
    def bottleneck(self) -> str:
        """One sentence: what the loop waits for, and what to change.

        >>> FeedStats(num_steps=9, read_s=3.0, stage_s=0.5, wait_s=2.5, compute_s=1.0).bottleneck
        'the loop waits 71% of its time, mostly for the reader: read in more threads, or cache'
        """
        loop_s = self.wait_s + self.compute_s
        if not loop_s:
            return "nothing was delivered yet"
        share = self.wait_s / loop_s
        if share < 0.05:
            return f"the loop waits {share:.0%} of its time: feeding is not the bottleneck"
        if self.wait_s > 2 * (self.read_s + self.stage_s):
            return (
                f"the loop waits {share:.0%} of its time, little of it for reading or collation: "
                "the rest is the start of each pass, kernels being compiled, and transfers"
            )
        if self.read_s >= self.stage_s:
            return (
                f"the loop waits {share:.0%} of its time, mostly for the reader: "
                "read in more threads, or cache"
            )
        return (
            f"the loop waits {share:.0%} of its time, mostly for collation: "
            "yield NumPy arrays of the declared dtype, or smaller fields"
        )
