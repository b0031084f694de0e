"""check_indices="device": an index outside its row writes nothing, and is an error of its pass."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.feeding import raw

from gpufeed.columnar import ColumnarBatch
from gpufeed.device import virtual_devices, virtual_stream
from gpufeed.errors import FieldError
from gpufeed.feeder import DataFeeder
from gpufeed.sparse import SparseRows
from gpufeed.tensor import LoDTensor
from gpufeed.variables import Program, data, program_guard

DIM, STEPS = 9, 12
KINDS: list[Any] = [True, "reuse", False]


@pytest.fixture(autouse=True)
def devices():
    with virtual_devices(2, seed=4, jitter=True):
        yield


def make_feeder(place: Any, densify: Any = True, check: Any = "device") -> DataFeeder:
    with program_guard(Program()):
        fields = [
            data("before", [1], wire_dtype="uint8", scale=2.0),
            data("seen", [DIM], layout="sparse_binary", densify=densify),
            data("price", [DIM], layout="sparse_float", densify=densify),
            data("after", [1], "int64", wire_dtype="uint8"),
        ]
        return DataFeeder(fields, place, check_indices=check)


def batch(number: int, index: int | None = None, *, field: str = "price") -> list[Any]:
    """Return two samples; of the second one an index of ``field`` is ``index``."""
    seen, price = [[0, number % DIM], [3]], [[(1, 0.5)], [(2, 1.5), (number % DIM, 1.0)]]
    if index is not None:
        seen[1] = [3, index] if field == "seen" else [3]
        price[1] = [(2, 1.5), (index, 1.0)] if field == "price" else price[1]
    return [([number], seen[0], price[0], [7]), ([1], seen[1], price[1], [8])]


def batches(bad: int, index: int = DIM, **options: Any) -> list[Any]:
    return [batch(n, index if n == bad else None, **options) for n in range(STEPS)]


def content(feed: Any) -> dict[str, list[Any]]:
    return {
        name: (each.to("cpu").to_dense() if isinstance(each, SparseRows) else each.numpy()).tolist()
        for name, each in feed.items()
    }


def take(reader: Any, use: Callable[[Any], object]) -> None:
    """Use one feed after the other, and keep none."""
    for feed in reader:
        use(feed)
        del feed


def expected(number: int, densify: Any = True) -> dict[str, list[Any]]:
    return content(make_feeder("cpu", densify, "host").feed(batch(number)))


@pytest.mark.parametrize("densify", KINDS)
@pytest.mark.parametrize("place", ["cpu", "cuda:0"])
@pytest.mark.parametrize("index", [-1, DIM, 2**31 - 1])
@pytest.mark.parametrize("field", ["seen", "price"])
def test_a_host_that_reads_gets_the_feeds_before_it_then_the_error(place, densify, index, field):
    bad, seen = 5, []
    reader = make_feeder(place, densify).decorate_reader(lambda: batches(bad, index, field=field))
    with pytest.raises(FieldError) as caught:
        take(reader, lambda feed: seen.append(content(feed)))
    message = rf"field '{field}', row 1: expected indices in [0, {DIM}), got {index}"
    assert str(caught.value) == message
    assert caught.value.__notes__ == [f"in step {bad} of this pass"]
    assert seen == [expected(number, densify) for number in range(bad)]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_the_next_pass_works_and_so_does_the_one_after_an_early_end(prefetch):
    bad = iter([4, STEPS, 2, STEPS])

    def passes():
        return batches(next(bad))

    reader = make_feeder("cuda:0").decorate_reader(passes, prefetch=prefetch)
    with pytest.raises(FieldError, match="row 1"):
        list(reader)
    good = [expected(number) for number in range(STEPS)]
    assert [content(feed) for feed in reader] == good
    left = reader()
    next(left)
    left.close()  # what comes next was fed ahead, and never taken
    assert [content(feed) for feed in reader] == good


@pytest.mark.parametrize("keeps_errors", [True, False])
@pytest.mark.parametrize("place", ["cuda:0", ["cuda:0", "cuda:1", "cuda:0"]])
def test_errors_take_no_slabs_from_later_passes(place, keeps_errors):
    """Neither those that are kept, as a notebook does, nor those that wait for the collector."""
    errors = []
    reader = make_feeder(place).decorate_reader(
        lambda: batches(0), multi_devices=isinstance(place, list), prefetch=1
    )
    gc.disable()
    try:
        for _ in range(5):
            with pytest.raises(FieldError) as caught:
                next(reader())
            errors += [caught.value] * keeps_errors
            del caught
        num_slabs = reader.stats().num_slabs
    finally:
        gc.enable()
    if not keeps_errors:
        assert num_slabs <= 2 * 3 * len(reader._places)  # on devices, and page-locked


def test_an_error_after_a_resume_names_the_step_of_the_pass():
    reader = make_feeder("cuda:0").decorate_reader(lambda: batches(6))
    steps = reader()
    for _ in range(4):
        next(steps)
    state = reader.state_dict()
    steps.close()
    reader.load_state_dict(state)
    with pytest.raises(FieldError) as caught:
        list(reader)
    assert caught.value.__notes__ == ["in step 6 of this pass"]


@pytest.mark.parametrize("bad", [0, 5, STEPS - 1])
def test_a_stream_that_reads_gets_rows_without_the_entry_and_the_host_the_error(bad):
    """At the end of the pass at the latest; until then the stream may be ever so far behind."""
    reader = make_feeder("cuda:0").decorate_reader(lambda: batches(bad, -1))
    seen: list[np.ndarray] = []
    with virtual_stream("cuda:0") as stream:

        def read(feed: Any) -> None:
            dense = raw(feed["price"].data)
            stream.call(lambda: seen.append(dense.tolist()))

        with pytest.raises(FieldError, match=r"'price', row 1: .* got -1") as caught:
            take(reader, read)
        assert caught.value.__notes__ == [f"in step {bad} of this pass"]
        del caught
    for number, rows in enumerate(seen):
        without = expected(number)["price"]
        if number == bad:
            without[1][number % DIM] -= 1.0
        assert rows == without
    gc.collect()


def test_places_that_repeat_and_others_name_their_own_step():
    places = ["cuda:0", "cuda:1", "cuda:0"]
    reader = make_feeder(places).decorate_reader(lambda: batches(7), multi_devices=True)
    seen = []
    with pytest.raises(FieldError, match="'price', row 1") as caught:
        take(reader, lambda feeds: seen.extend(map(content, feeds)))
    assert caught.value.__notes__ == ["in step 2 of this pass"]
    assert seen == [expected(number) for number in range(6)]


def test_feeds_that_were_collated_in_another_process_are_checked_too():
    reader = make_feeder("cuda:0").decorate_reader(lambda: batches(3), isolate=True)
    seen = []
    with pytest.raises(FieldError, match=rf"expected indices in \[0, {DIM}\), got {DIM}"):
        take(reader, lambda feed: seen.append(content(feed)))
    assert seen == [expected(number) for number in range(3)]


@pytest.mark.parametrize("place", ["cpu", "cuda:0"])
def test_one_mini_batch_after_the_other(place):
    feeder = make_feeder(place)
    for number in range(3):
        with pytest.raises(FieldError, match=f"got {DIM + number}") as caught:
            feeder.feed(batch(number, DIM + number))
        assert not hasattr(caught.value, "__notes__")
        assert content(feeder.feed(batch(number))) == expected(number)


@pytest.mark.parametrize("index", [2**32 + 1, -(2**33)])
def test_an_index_that_would_not_survive_the_way_is_found_on_the_host(index):
    with program_guard(Program()):
        field = data("seen", [DIM], layout="sparse_binary", densify=True)
        feeder = DataFeeder([field], "cuda:0", check_indices="device")
    whole = ColumnarBatch({"seen": LoDTensor([1, index], lod=[[0, 1, 2]])})
    for samples in ([([1],), ([index],)], [(np.array([1]),), (np.array([index]),)], whole):
        with pytest.raises(FieldError, match=rf"sample 1: .* got {index}"):
            feeder.feed(samples)


def test_the_option_is_checked():
    with pytest.raises(FieldError, match="check_indices must be 'host' or 'device', got 'gpu'"):
        make_feeder("cpu", check="gpu")
