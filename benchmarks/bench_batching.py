"""What does batching by length cost a sample, and how much padding and idle budget does it save?

Method: 100,000 samples ``(ids, label)`` whose lengths are log-normal (median 150, sigma 0.9, cut to
2,048 tokens), in memory. First the result: each way of batching is run once and asked for its
`stats`; printed are the padding waste (if each batch were padded to its longest sample) and the
fill (share of ``max_tokens`` used). Then the cost: plain ``batch`` is the floor, and every
contestant is drained into nothing. All must deliver every sample once. For packing the contestants
are the naive cut, first-fit by the textbook (a scan of all open bins), and the same best-fit by
scanning; they hold as many open bins as ``pack=True`` does. Record batches are compared with the
samples they hold.

Not measured: reading, collation, what a step gains (nothing is trained here), and other packages'
batching: with them comes a loader whose cost hides it.

Command: ``python benchmarks batching``

Last result (virtual machine, 2 cores of an AMD EPYC, Python 3.11.7, beside other work),
microseconds a sample over the floor of 0.02: lengths taken 0.45, ``max_tokens`` 0.43, with a
``sort_window`` of 512 or 8,192 0.53 and 0.64, ``padded`` 0.73 to 0.87, ``buckets`` 0.48, ``pack``
1.5 (scans for first-fit and best-fit 1.8 and 1.9); of record batches, 0.1 for 64 rows each, 1.0
with ``max_tokens``, 3.6 sorted too and 8.4 packed, where rows are gathered (60 to 200 a batch: the
copy that collation would make of samples, and NumPy calls for the few rows of a bin). Padding would
waste 83% of batches of 64, 45% and 4% of those sorted in windows of 512 and 8,192, 29% with
six buckets; with a padded budget of 16,384 it is 19%, 6% and 2% for windows of 512, 2,048 and
8,192. Bins of 2,048 tokens are filled to 88.9% by cutting, to 99.74% by best-fit, to 99.73% by
first-fit with as many open bins (so the gain is in packing, not in the kind), and to 99.98% in
windows of 4,096.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
from harness import Case

from gpufeed.columnar import ColumnarBatch
from gpufeed.reader import batch
from gpufeed.reader.batch import Batch
from gpufeed.reader.packing import NUM_OPEN
from gpufeed.tensor import LoDTensor

NUM_SAMPLES = 100_000
LONGEST = 2_048
Sample = tuple[np.ndarray[Any, Any], int]

drain: Callable[[Iterable[Any]], object] = partial(deque, maxlen=0)


def cases() -> Iterator[Case]:
    """Print what each way of batching wastes; yield the comparisons of what it costs."""
    samples = _samples()

    def source() -> list[Sample]:
        return samples

    cut = {
        "batch(64) (floor)": batch(source, 64),
        "batch(64), lengths taken": batch(source, 64, length=_length),
        "sort_window=512": batch(source, 64, sort_window=512),
        "sort_window=8192": batch(source, 64, sort_window=8_192),
        "buckets": batch(source, 64, buckets=[64, 128, 256, 512, 1_024]),
    }
    budget = {
        "batch(64) (floor)": batch(source, 64),
        "max_tokens=16384": batch(source, max_tokens=16_384),
        "max_tokens, sort_window=512": batch(source, max_tokens=16_384, sort_window=512),
        "max_tokens, sort_window=8192": batch(source, max_tokens=16_384, sort_window=8_192),
        "padded, sort_window=512": _padded(source, 512),
        "padded, sort_window=2048": _padded(source, 2_048),
        "padded, sort_window=8192": _padded(source, 8_192),
    }
    pack = {
        "max_tokens=2048, no packing": batch(source, max_tokens=2_048),
        "pack=True": batch(source, max_tokens=2_048, pack=True),
        "pack=True, sort_window=4096": batch(
            source, max_tokens=2_048, pack=True, sort_window=4_096
        ),
    }
    scans = {
        "first-fit, by scanning": partial(_packed_by_scan, source, 2_048, best=False),
        "best-fit, by scanning": partial(_packed_by_scan, source, 2_048, best=True),
    }
    _print_waste("samples a batch", cut)
    _print_waste("token budget", budget)
    _print_waste("packing", pack)
    for name, packed in scans.items():
        bins = list(packed())
        fill = sum(map(_length, samples)) / (len(bins) * 2_048)
        print(f"  {name:34}{'':>12}{fill:12.2%}")
    yield _case("batch(64) by length", cut)
    yield _case("token budgets", budget)
    yield _case("packing into bins of 2,048 tokens", {**pack, **scans})
    yield _columnar_case(samples)


def _padded(source: Callable[[], list[Sample]], window: int) -> Batch[Sample]:
    return batch(source, max_tokens=16_384, sort_window=window, padded=True)


def _samples() -> list[Sample]:
    random = np.random.default_rng(1)
    lengths = random.lognormal(np.log(150), 0.9, NUM_SAMPLES).astype(int).clip(1, LONGEST)
    ids = np.arange(LONGEST)
    return [(ids[:length], number) for number, length in enumerate(lengths.tolist())]


def _length(sample: Sample) -> int:
    return len(sample[0])


def _print_waste(title: str, readers: dict[str, Batch[Sample]]) -> None:
    print(f"{title}\n  {'':34}{'if padded':>12}{'fill':>12}{'batches':>10}")
    for name, reader in readers.items():
        if name.endswith("(floor)"):
            continue
        drain(reader)
        stats = reader.stats()
        fill = "" if stats.fill is None else f"{stats.fill:.2%}"
        print(f"  {name:34}{stats.padding_waste:12.1%}{fill:>12}{stats.num_batches:10,}")


def _packed_by_scan(
    source: Callable[[], list[Sample]], max_tokens: int, *, best: bool
) -> Iterator[list[Sample]]:
    """Pack as textbooks do, looking at every open bin; the oldest leaves when too many are."""
    bins: list[tuple[list[int], list[Sample]]] = []
    for sample in source():
        length = len(sample[0])
        found = None
        for number, ((room,), _) in enumerate(bins):
            if room >= length and (found is None or room < bins[found][0][0]):
                found = number
                if not best:
                    break
        if found is None:
            found = len(bins)
            bins.append(([max_tokens], []))
        bins[found][0][0] -= length
        bins[found][1].append(sample)
        if not bins[found][0][0]:
            yield bins.pop(found)[1]
        elif len(bins) > NUM_OPEN:
            yield bins.pop(0)[1]
    yield from (samples for _, samples in bins)


def _case(name: str, contestants: dict[str, Any]) -> Case:
    return Case(
        name=name,
        contestants=contestants,
        num_units=NUM_SAMPLES,
        unit="sample",
        checksum=_sum_of_labels,
        finish=drain,
    )


def _columnar_case(samples: list[Sample]) -> Case:
    """The same samples one by one, and as record batches of 8,192 rows."""
    lod = [[0, *np.cumsum([len(ids) for ids, _ in samples]).tolist()]]
    whole = ColumnarBatch(
        {
            "ids": LoDTensor(np.concatenate([ids for ids, _ in samples]), lod=lod),
            "label": np.arange(len(samples)),
        }
    )
    record_batches = [whole[at : at + 8_192] for at in range(0, len(whole), 8_192)]

    def source() -> list[ColumnarBatch]:
        return record_batches

    return _case(
        "record batches of 8,192 rows",
        {
            "batch(64) of samples (floor)": batch(lambda: samples, 64),
            "batch(64) of rows": batch(source, 64),
            "max_tokens=16384": batch(source, max_tokens=16_384),
            "max_tokens, sort_window=8192": batch(source, max_tokens=16_384, sort_window=8_192),
            "pack=True, 2048": batch(source, max_tokens=2_048, pack=True),
        },
    )


def _sum_of_labels(batches: Iterable[Any]) -> tuple[int, int]:
    """How many samples there were, and the sum of their labels."""
    num = total = 0
    for samples in batches:
        num += len(samples)
        if isinstance(samples, ColumnarBatch):
            total += int(samples.columns["label"].sum())
        else:
            total += sum(label for _, label in samples)
    return num, total
