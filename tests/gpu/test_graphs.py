"""Graph capture around feeds: refused where it would go wrong, replayed where feeds are static."""

from __future__ import annotations

import pytest
from conftest import HAS_CUDA_DEVICE
from support.feeding import batch, make_feeder, make_reader

from gpufeed.errors import PlaceError
from gpufeed.places import CUDAPlace

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not HAS_CUDA_DEVICE, reason="no CUDA device on this machine"),
]

PLACE = CUDAPlace(0)
BOUNDS = {"ids": (6, 60), "label": 6}
STEPS = 40


def sums():
    """Return the sum of the ids of each batch."""
    return [int(sum(row.sum() for row, _ in batch(number))) for number in range(STEPS)]


def test_a_feed_taken_in_a_capture_is_refused_and_the_capture_goes_on():
    import cupy

    reader = make_feeder(PLACE).decorate_reader(make_reader(STEPS))
    feeds, stream = reader(), cupy.cuda.Stream(non_blocking=True)
    with stream:
        ids = next(feeds)["ids"].data
        copy = cupy.zeros_like(ids)
        stream.begin_capture()
        with pytest.raises(PlaceError, match="outside of graph capture"):
            next(feeds)
        cupy.copyto(copy, ids)
        graph = stream.end_capture()
        graph.launch(stream)
        assert int(copy.sum()) == sums()[0]
        assert [int(feed["ids"].data.sum()) for feed in reader] == sums()


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_captured_graph_of_cupy_sees_every_static_feed(prefetch):
    import cupy

    reader = make_feeder(PLACE).decorate_reader(
        make_reader(STEPS), static=BOUNDS, prefetch=prefetch
    )
    stream, graph, seen = cupy.cuda.Stream(non_blocking=True), None, []
    with stream:
        for feed in reader:
            if graph is None:
                ids = feed["ids"].data
                copy = cupy.empty_like(ids)  # before, so that nothing is allocated inside
                stream.begin_capture()
                cupy.copyto(copy, ids)
                graph = stream.end_capture()
            graph.launch(stream)
            seen.append(copy.sum())
        assert [int(each) for each in seen] == sums()


def test_a_captured_graph_of_torch_does_so_while_the_producer_makes_slabs():
    """torch captures in CUDA's strictest mode, in which other threads must declare themselves."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    torch.zeros(1, device="cuda")
    reader = make_feeder(PLACE).decorate_reader(make_reader(STEPS), static=BOUNDS)
    graph, seen = None, []
    with torch.cuda.stream(torch.cuda.Stream()):
        for feed in reader:
            if graph is None:
                ids = feed["ids"].to_torch()
                total = ids.sum()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
                    total = ids.sum()
            graph.replay()
            seen.append(total.clone())
        assert [int(each) for each in seen] == sums()
