"""check_indices="device": an index outside its row writes nothing, and is an error of its pass."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import nullcontext
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
    message = rf"field '{field}', sample 1: expected indices in [0, {DIM}), got {index}"
    assert str(caught.value) == message
    assert caught.value.__notes__ == [f"in step {bad} of this pass"]
    assert seen == [expected(number, densify) for number in range(bad)]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_the_next_pass_works_and_so_does_the_one_after_an_early_end(prefetch):
    bad = iter([4, STEPS, 2, STEPS])

    def passes():
        return batches(next(bad))

    reader = make_feeder("cuda:0").decorate_reader(passes, prefetch=prefetch)
    with pytest.raises(FieldError, match="sample 1"):
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

        with pytest.raises(FieldError, match=r"'price', sample 1: .* got -1") as caught:
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
    with pytest.raises(FieldError, match="'price', sample 1") as caught:
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
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_feed_of_its_own_is_checked_on_the_host(place, is_stream):
    """So that its error is raised by the call that it is of, whoever reads what that returns."""
    feeder = make_feeder(place)
    with virtual_stream("cuda:0") if is_stream else nullcontext():
        for number in range(3):
            for feed in (feeder.feed, lambda bad: next(feeder.feed_parallel([bad], 1))):
                with pytest.raises(FieldError, match=f"'price', sample 1: .* got {DIM + number}"):
                    feed(batch(number, DIM + number))
            assert content(feeder.feed(batch(number))) == expected(number)


@pytest.mark.parametrize("densify", KINDS)
@pytest.mark.parametrize("place", ["cpu", "cuda:0"])
@pytest.mark.parametrize("levels", [1, 2])
def test_the_sample_of_a_sequence_is_named_as_the_host_names_it(place, densify, levels):
    with program_guard(Program()):
        tags = data("tags", [DIM], layout="sparse_binary", lod_level=levels, densify=densify)
        feeder = DataFeeder([tags], place, check_indices="device")
    rows = [[], [[1], [2, 3]], [], [[4], [], [DIM]], [[5]]]
    samples = [(row if levels == 1 else [[], row, []],) for row in rows]
    with pytest.raises(FieldError) as on_host:
        feeder.feed(samples)
    with pytest.raises(FieldError) as on_device:
        list(feeder.decorate_reader(lambda: [samples[:3], samples]))
    assert str(on_device.value) == str(on_host.value)
    assert "sample 3: expected" in str(on_host.value)
    assert on_device.value.__notes__ == ["in step 1 of this pass"]


def test_a_pass_that_is_left_logs_what_was_known_by_then(caplog):
    reader = make_feeder("cuda:0").decorate_reader(lambda: batches(1), prefetch=0)
    with virtual_stream("cuda:0"):
        steps = reader()
        for _ in range(2):
            next(steps)
        for streams in reader._pool._streams.values():
            streams.unpack.synchronize()
        steps.close()
    (record,) = caplog.records
    assert record.getMessage() == (
        "decorate_reader: the pass was left before this was raised: field 'price', sample 1: "
        f"expected indices in [0, {DIM}), got {DIM} (in step 1 of this pass)"
    )


def test_what_was_raised_or_not_yet_delivered_is_not_logged(caplog):
    feeder = make_feeder("cuda:0")
    with pytest.raises(FieldError):
        list(feeder.decorate_reader(lambda: batches(0)))
    with virtual_stream("cuda:0"), feeder.decorate_reader(lambda: batches(1)) as reader:
        next(reader())
    assert not caplog.records


@pytest.mark.parametrize("index", [2**32 + 1, -(2**33)])
def test_an_index_that_would_not_survive_the_way_is_found_on_the_host(index):
    with program_guard(Program()):
        field = data("seen", [DIM], layout="sparse_binary", densify=True)
        feeder = DataFeeder([field], "cuda:0", check_indices="device")
    whole = ColumnarBatch({"seen": LoDTensor([1, index], lod=[[0, 1, 2]])})
    for samples in ([([1],), ([index],)], [(np.array([1]),), (np.array([index]),)], whole):
        with pytest.raises(FieldError, match=rf"sample 1: .* got {index}"):
            list(feeder.decorate_reader([samples].copy))


def test_the_option_is_checked():
    with pytest.raises(FieldError, match="check_indices must be 'host' or 'device', got 'gpu'"):
        make_feeder("cpu", check="gpu")
