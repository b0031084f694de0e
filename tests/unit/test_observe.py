import json
import os
import re
import threading
import time

import pytest

from gpufeed.observe.record import Recorder
from gpufeed.observe.stats import FeedStats


@pytest.mark.parametrize(
    ("stats", "verdict"),
    [
        (FeedStats(), "nothing was delivered"),
        (FeedStats(wait_s=0.04, compute_s=0.96), "4% .* feeding is not the bottleneck"),
        (FeedStats(wait_s=5, compute_s=5, read_s=5, stage_s=1), "50% .* the reader: .*threads"),
        (FeedStats(wait_s=5, compute_s=5, read_s=1, stage_s=5), "50% .* collation: .*arrays"),
        (
            FeedStats(wait_s=9, compute_s=1, read_s=1, stage_s=1),
            "90% .*little of it for reading or collation: .*transfers",
        ),
    ],
)
def test_the_bottleneck_is_named_with_its_share_and_a_remedy(stats, verdict):
    assert re.search(verdict, stats.bottleneck), stats.bottleneck


class TestRecorder:
    def test_adds_spans_up(self):
        stats = FeedStats()
        record = Recorder(stats)
        now = time.perf_counter()
        after = record.add("read", now - 1.0)
        record.add("read", now - 2.0)
        record.add("wait", now - 4.0)
        assert after >= now
        assert stats.read_s == pytest.approx(3.0, abs=0.5)
        assert stats.wait_s == pytest.approx(4.0, abs=0.5)
        assert stats.compute_s == 0

    def test_takes_off_what_is_recorded_as_something_else(self):
        stats = FeedStats()
        Recorder(stats).add("stage", time.perf_counter() - 3.0, minus_s=2.0)
        assert stats.stage_s == pytest.approx(1.0, abs=0.5)

    def test_spans_follow_each_other_without_a_gap(self):
        stats = FeedStats()
        record = Recorder(stats)
        begin = now = time.perf_counter()
        for _ in range(100):
            now = record.add("read", now)
            now = record.add("stage", now)
        assert stats.read_s + stats.stage_s == pytest.approx(now - begin)

    def test_writes_nothing_unless_asked(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        record = Recorder(FeedStats())
        record.add("read", 0.0)
        record.write()
        assert list(tmp_path.iterdir()) == []

    def test_writes_a_trace_in_chromes_format(self, tmp_path):
        record = Recorder(FeedStats(), str(tmp_path / "t.json"))
        begin = time.perf_counter()
        now = record.add("read", begin)
        worker = threading.Thread(target=record.add, args=("wait", now))
        worker.start()
        worker.join()
        record.write()
        read, wait = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
        assert (read["name"], read["ph"], read["pid"]) == ("read", "X", os.getpid())
        assert read["ts"] == pytest.approx(begin * 1e6)
        assert read["dur"] == pytest.approx((now - begin) * 1e6)
        assert wait["name"] == "wait"
        assert wait["tid"] != read["tid"] == threading.get_native_id()
