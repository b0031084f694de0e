import gc
import threading
from functools import partial

import numpy as np
import pytest

from gpufeed.device import virtual
from gpufeed.device.virtual import (
    VirtualBackend,
    VirtualStream,
    num_virtual_devices,
    virtual_devices,
    virtual_stream,
)
from gpufeed.errors import PlaceError
from gpufeed.places import CUDAPlace


class WorkError(Exception):
    pass


def fail():
    raise WorkError("work failed")


@pytest.fixture
def stream():
    made = VirtualStream()
    yield made
    made.close()


class TestVirtualDevices:
    def test_there_are_none_unless_asked_for(self, monkeypatch):
        monkeypatch.delenv("GPUFEED_VIRTUAL_DEVICES", raising=False)
        assert num_virtual_devices() == 0

    def test_the_environment_asks_for_them(self, monkeypatch):
        monkeypatch.setenv("GPUFEED_VIRTUAL_DEVICES", "3")
        assert num_virtual_devices() == 3

    @pytest.mark.parametrize("said", ["two", "-1", "1.5"])
    def test_an_unreadable_environment_is_an_error(self, monkeypatch, said):
        monkeypatch.setenv("GPUFEED_VIRTUAL_DEVICES", said)
        with pytest.raises(PlaceError, match=f"GPUFEED_VIRTUAL_DEVICES .*{said!r}"):
            num_virtual_devices()

    @pytest.mark.parametrize("n", [-1, 1.5, "2", True, None])
    def test_their_number_is_a_whole_one(self, n):
        with pytest.raises(PlaceError, match=r"virtual_devices\.n"):
            virtual_devices(n)

    def test_blocks_nest(self):
        with virtual_devices(2):
            with virtual_devices(1):
                assert num_virtual_devices() == 1
            assert num_virtual_devices() == 2

    def test_the_code_goes_before_the_environment(self, monkeypatch):
        monkeypatch.setenv("GPUFEED_VIRTUAL_DEVICES", "3")
        with virtual_devices(0):
            assert num_virtual_devices() == 0

    def test_a_seed_repeats_the_delays(self, monkeypatch):
        seeds = []

        class Delays:
            def __init__(self, seed):
                seeds.append(seed)

            def uniform(self, low, high):
                return low

        monkeypatch.setattr(virtual.random, "Random", Delays)
        for _ in range(2):
            with virtual_devices(1, seed=5, jitter=True):
                VirtualStream(), VirtualStream()
        assert seeds[:2] == seeds[2:]
        assert seeds[0] != seeds[1]


class TestVirtualStream:
    def test_works_in_order_on_one_thread_that_is_not_the_callers(self, stream):
        done = []
        for number in range(100):
            stream.call(lambda number=number: done.append((number, threading.get_ident())))
        stream.synchronize()
        assert [number for number, _ in done] == list(range(100))
        (worker,) = {ident for _, ident in done}
        assert worker != threading.get_ident()

    def test_has_no_thread_before_its_first_work(self):
        before = threading.active_count()
        stream = VirtualStream()
        assert threading.active_count() == before
        stream.call(lambda: None)
        assert threading.active_count() == before + 1
        stream.close()
        assert threading.active_count() == before

    def test_an_event_passes_after_the_work_before_it(self, stream):
        latch = threading.Event()
        early = stream.record()
        stream.call(latch.wait)
        late = stream.record()
        early.synchronize()
        assert early.query()
        assert not late.query()
        latch.set()
        late.synchronize()
        assert late.query()

    def test_waits_for_another_streams_event_and_the_host_goes_on(self, stream):
        other, latch, done = VirtualStream(), threading.Event(), []
        other.call(latch.wait)
        other.call(lambda: done.append("other"))
        stream.wait(other.record())
        stream.call(lambda: done.append("this"))
        assert done == []
        latch.set()
        stream.synchronize()
        assert done == ["other", "this"]
        other.close()

    def test_two_streams_do_not_wait_for_each_other_by_themselves(self, stream):
        latch, other = threading.Event(), VirtualStream()
        stream.call(latch.wait)
        other.call(lambda: None)
        other.synchronize()
        latch.set()
        other.close()

    def test_close_finishes_what_is_enqueued_and_may_be_repeated(self):
        stream, done = VirtualStream(), []
        for number in range(10):
            stream.call(lambda number=number: done.append(number))
        stream.close()
        stream.close()
        assert done == list(range(10))

    def test_takes_no_work_after_its_end(self):
        stream = VirtualStream()
        stream.close()
        with pytest.raises(PlaceError, match="closed"):
            stream.call(lambda: None)

    def test_what_a_closed_stream_did_is_done(self):
        stream = VirtualStream()
        stream.call(lambda: None)
        stream.close()
        assert stream.record().query()
        stream.synchronize()

    def test_may_be_closed_by_its_own_work(self):
        stream = VirtualStream()
        stream.call(stream.close)
        stream.record().synchronize()

    def test_its_thread_ends_when_the_stream_is_dropped(self):
        before = set(threading.enumerate())
        stream, done = VirtualStream(), []
        stream.call(lambda: done.append("work"))
        (thread,) = set(threading.enumerate()) - before
        del stream
        gc.collect()
        thread.join(10)
        assert not thread.is_alive()
        assert done == ["work"]

    def test_keeps_nothing_of_its_work_alive(self, stream):
        class Held:
            pass

        held, dropped = Held(), threading.Event()
        virtual.weakref.finalize(held, dropped.set)
        stream.call(lambda held=held: None)
        del held
        assert dropped.wait(10)

    def test_many_threads_may_enqueue(self, stream):
        done = []

        def enqueue(who):
            for number in range(200):
                stream.call(partial(done.append, (who, number)))

        threads = [threading.Thread(target=enqueue, args=(who,)) for who in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stream.synchronize()
        assert [[n for w, n in done if w == who] for who in range(4)] == [[*range(200)]] * 4


class TestCapture:
    def test_takes_work_down_and_does_it_at_each_launch(self, stream):
        done = []
        stream.call(lambda: done.append("before"))
        with stream.capture() as graph:
            assert stream.is_capturing()
            stream.call(lambda: done.append("first"))
            stream.call(lambda: done.append("second"))
        assert not stream.is_capturing()
        stream.synchronize()
        assert done == ["before"]
        other = VirtualStream()
        graph.launch(other)
        graph.launch(other)
        other.close()
        assert done == ["before", *["first", "second"] * 2]

    def test_refuses_what_would_break_a_capture(self, stream):
        event = stream.record()
        with stream.capture():
            for forbidden in [stream.record, stream.synchronize, partial(stream.wait, event)]:
                with pytest.raises(PlaceError, match="a stream that is captured cannot"):
                    forbidden()
        stream.wait(event)


class TestErrors:
    def test_synchronize_raises_what_the_work_raised(self, stream):
        stream.call(fail)
        with pytest.raises(WorkError):
            stream.synchronize()

    def test_an_event_recorded_later_raises_it_too_and_an_earlier_one_does_not(self, stream):
        before = stream.record()
        stream.call(fail)
        after = stream.record()
        before.synchronize()
        with pytest.raises(WorkError):
            after.synchronize()
        assert after.query()

    def test_nothing_runs_after_the_first_failure(self, stream):
        done = []
        stream.call(fail)
        stream.call(lambda: done.append("more"))
        with pytest.raises(WorkError):
            stream.synchronize()
        assert done == []

    def test_a_stream_that_waited_for_a_failed_one_fails_too(self, stream):
        other, done = VirtualStream(), []
        other.call(fail)
        stream.wait(other.record())
        stream.call(lambda: done.append("more"))
        with pytest.raises(WorkError):
            stream.synchronize()
        assert done == []
        other.close()

    def test_a_closed_stream_still_says_how_it_failed(self):
        stream = VirtualStream()
        stream.call(fail)
        stream.close()
        with pytest.raises(WorkError):
            stream.synchronize()

    def test_an_error_that_holds_the_stream_does_not_keep_its_thread(self):
        def work_in_vain():
            stream = VirtualStream()
            stream.call(fail)
            stream.synchronize()

        before = set(threading.enumerate())
        with pytest.raises(WorkError):
            work_in_vain()
        (thread,) = set(threading.enumerate()) - before
        gc.collect()
        thread.join(10)
        assert not thread.is_alive()

    def test_the_end_of_a_block_raises_what_its_work_raised(self):
        with virtual_devices(1), pytest.raises(WorkError), virtual_stream("cuda:0") as stream:
            stream.call(fail)

    def test_but_not_instead_of_the_blocks_own_error(self):
        def work_in_vain():
            with virtual_stream("cuda:0") as stream:
                stream.call(fail)
                raise KeyError("mine")

        with virtual_devices(1), pytest.raises(KeyError, match="mine"):
            work_in_vain()


class TestCurrentStream:
    def test_is_the_host_outside_and_the_innermost_block_inside(self):
        with virtual_devices(1):
            device = VirtualBackend(CUDAPlace(0))
            assert device.consumer_streams() == []
            with virtual_stream("cuda:0") as outer:
                with virtual_stream("cuda:0") as inner:
                    assert device.consumer_streams() == [inner]
                assert device.consumer_streams() == [outer]
            assert device.consumer_streams() == []

    def test_belongs_to_one_device(self):
        with virtual_devices(2), virtual_stream("cuda:1") as stream:
            assert VirtualBackend(CUDAPlace(0)).consumer_streams() == []
            assert VirtualBackend(CUDAPlace(1)).consumer_streams() == [stream]

    def test_belongs_to_one_thread(self):
        with virtual_devices(1), virtual_stream("cuda:0"):
            seen = []
            device = VirtualBackend(CUDAPlace(0))
            thread = threading.Thread(target=lambda: seen.append(device.consumer_streams()))
            thread.start()
            thread.join()
            assert seen == [[]]

    def test_a_named_stream_goes_before_it(self, stream):
        with virtual_devices(1), virtual_stream("cuda:0"):
            assert VirtualBackend(CUDAPlace(0)).as_stream(stream) is stream

    def test_something_else_than_a_stream_is_an_error(self):
        with pytest.raises(PlaceError, match="VirtualStream, got 7"):
            VirtualBackend(CUDAPlace(0)).as_stream(7)

    @pytest.mark.parametrize("place", ["cpu", "cuda:1", "cuda_pinned"])
    def test_there_must_be_such_a_device(self, place):
        with (
            virtual_devices(1),
            pytest.raises(PlaceError, match="virtual device"),
            virtual_stream(place),
        ):
            pass


def test_device_memory_is_a_copy_of_its_own():
    device = VirtualBackend(CUDAPlace(0))
    ids = np.arange(3)
    there = device.from_host(ids)
    ids[0] = 7
    back = device.to_host(there)
    there[1] = 7
    assert back.tolist() == [0, 1, 2]
