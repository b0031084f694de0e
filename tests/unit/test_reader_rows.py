"""Batches of record batches: cut by rows, without a copy where no two meet."""

from __future__ import annotations

import subprocess
import sys
import weakref

import numpy as np
import pytest
from support.readers import BrokenError, taken_until

from gpufeed.columnar import ColumnarBatch
from gpufeed.errors import FieldError
from gpufeed.feeder import DataFeeder
from gpufeed.reader import batch, map_readers
from gpufeed.reader.base import Reader
from gpufeed.reader.rows import gather_rows
from gpufeed.sparse import SparseRows
from gpufeed.tensor import LoDTensor
from gpufeed.variables import Program, data, program_guard


def record_batches(*sizes):
    """Return record batches whose rows are numbered throughout."""
    ends = np.cumsum([0, *sizes]).tolist()
    return [ColumnarBatch({"x": np.arange(ends[i], ends[i + 1])}) for i in range(len(sizes))]


def sequences(*lengths):
    offsets = np.cumsum([0, *lengths]).tolist()
    return ColumnarBatch(
        {"label": np.arange(len(lengths)), "ids": LoDTensor(np.arange(offsets[-1]), lod=[offsets])}
    )


def numbers(batches):
    return [rows.columns["x"].tolist() for rows in batches]


class Columnar(Reader[ColumnarBatch]):
    """Record batches that skip without being made, and know what was skipped."""

    def __init__(self, *sizes):
        super().__init__("columnar", sizes=sizes)
        self.batches = record_batches(*sizes)
        self.skipped = []

    def open(self, epoch, skip):
        self.skipped.append(skip)
        return iter(self.batches[skip:])


@pytest.mark.parametrize(
    ("sizes", "drop_last", "expected"),
    [
        ((5,), False, [[0, 1], [2, 3], [4]]),
        ((5,), True, [[0, 1], [2, 3]]),
        ((1, 1, 1), False, [[0, 1], [2]]),
        ((3, 3), False, [[0, 1], [2, 3], [4, 5]]),
        ((0, 2, 0, 1, 0), False, [[0, 1], [2]]),
        ((0,), False, []),
        ((1,), True, []),
    ],
)
def test_rows_are_batched_like_samples(sizes, drop_last, expected):
    assert numbers(batch(lambda: record_batches(*sizes), 2, drop_last)) == expected


def test_a_batch_inside_a_record_batch_is_a_view_of_it():
    (whole,) = record_batches(4)
    for rows in batch(lambda: [whole], 2):
        assert np.shares_memory(rows.columns["x"], whole.columns["x"])


def test_a_batch_over_a_seam_is_a_copy_of_both_ends():
    first, second = record_batches(3, 1)
    _, rows = batch(lambda: [first, second], 2)
    assert rows.columns["x"].tolist() == [2, 3]
    assert not np.shares_memory(rows.columns["x"], first.columns["x"])


def test_no_more_is_read_than_a_batch_needs():
    num_read = 0

    def source():
        nonlocal num_read
        for rows in record_batches(4, 4):
            num_read += 1
            yield rows

    batches = batch(source, 2)()
    next(batches), next(batches)
    assert num_read == 1


@pytest.mark.parametrize("skip", range(6))
def test_skipping_counts_rows(skip):
    expected = [[0, 1], [2, 3], [4, 5], [6]]
    for reader in (
        lambda: record_batches(3, 0, 4),
        Columnar(3, 0, 4),
        map_readers(lambda rows: rows, Columnar(3, 0, 4)),
    ):
        assert numbers(batch(reader, 2).open(0, skip)) == expected[skip:]
        assert (
            numbers(batch(reader, 2, sort_window=3, length=ones).open(0, skip)) == (expected[skip:])
        )


def ones(rows):
    return np.ones(len(rows), int)


def test_a_reader_of_samples_is_opened_once():
    opened = []

    class Samples(Reader):
        def open(self, epoch, skip):
            opened.append(skip)
            return iter(range(skip, 9))

    assert list(batch(Samples("samples"), 2).open(0, 3)) == [[6, 7], [8]]
    assert opened == [6]


def test_record_batches_that_say_so_are_opened_once():
    class Known(Columnar):
        is_columnar = True

    source = Known(3, 4)
    assert numbers(batch(source, 2).open(0, 2)) == [[4, 5], [6]]
    assert source.skipped == [0]


def test_rows_are_found_by_a_reader_that_can():
    class Seekable(Columnar):
        is_columnar = True

        def open_rows(self, epoch, skip):
            self.skipped.append((epoch, skip))
            return iter([ColumnarBatch({"x": np.arange(skip, 7)})])

    source = Seekable(7)
    assert numbers(batch(source, 2).open(3, 2)) == [[4, 5], [6]]
    assert source.skipped == [(3, 4)]


def test_samples_made_of_record_batches_are_samples():
    class Known(Columnar):
        is_columnar = True

    reader = batch(map_readers(len, Known(3, 4, 5)), 2)
    assert list(reader.open(0, 0)) == [[3, 4], [5]]
    assert list(reader.open(0, 1)) == [[5]]


def test_the_first_sample_is_not_kept():
    class Sample:
        pass

    def source():
        while True:
            yield Sample()

    batches = batch(source, 1)()
    first = weakref.ref(next(batches)[0])
    next(batches)
    assert first() is None
    batches.close()


def test_behind_the_end_there_is_nothing_of_either_kind():
    for reader in (lambda: [1, 2, 3], map_readers(abs, lambda: [1, 2, 3]), Columnar(3)):
        assert list(batch(reader, 2).open(0, 2)) == []
    assert list(batch(Columnar(), 2).open(0, 0)) == []


def test_a_state_counts_batches():
    reader = batch(Columnar(5, 5), 3)
    batches = reader()
    next(batches)
    again = batch(Columnar(5, 5), 3)
    again.load_state_dict(reader.state_dict())
    assert numbers(again) == [[3, 4, 5], [6, 7, 8], [9]]


@pytest.mark.parametrize("options", [{}, {"max_tokens": 9, "length": ones}])
def test_rows_in_front_of_an_error_come_before_it(options):
    def source():
        yield from record_batches(3)
        raise BrokenError

    taken, error = taken_until(batch(source, 2, **options))
    assert numbers(taken) == [[0, 1], [2]]
    assert isinstance(error, BrokenError)
    taken, error = taken_until(batch(source, 2, drop_last=True, **options))
    assert numbers(taken) == [[0, 1]]


def test_what_is_no_record_batch_is_named():
    taken, error = taken_until(batch(lambda: [*record_batches(3), (1, 2)], 2))
    assert numbers(taken) == [[0, 1], [2]]
    assert isinstance(error, FieldError)
    assert (
        "record batch 1: batch.reader must yield ColumnarBatch only, as it began, got tuple"
        in str(error)
    )


def test_record_batches_of_other_columns_do_not_join():
    other = ColumnarBatch({"y": np.arange(2)})
    taken, error = taken_until(batch(lambda: [*record_batches(3), other], 2))
    assert numbers(taken) == [[0, 1]]
    assert isinstance(error, FieldError)


def test_sizes_may_grow():
    reader = batch(lambda: record_batches(4, 2), lambda epoch, number: 1 + number)
    assert numbers(reader) == [[0], [1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (sequences(3, 1, 2), [[0, 1], [2]]),
        (
            ColumnarBatch(
                {
                    "label": np.arange(3),
                    "tags": SparseRows([0, 1, 2, 2, 2], [1, 2], None, 9, lod=[[0, 1, 3, 4]]),
                }
            ),
            [[0, 1], [2]],
        ),
    ],
)
def test_the_length_of_a_row_is_that_of_the_first_column_of_sequences(rows, expected):
    batches = batch(lambda: [rows], max_tokens=4 if "ids" in rows.columns else 3)
    assert [part.columns["label"].tolist() for part in batches] == expected


def test_rows_without_sequences_need_a_length():
    with pytest.raises(FieldError, match=r"batch.length must be given for a ColumnarBatch without"):
        list(batch(lambda: record_batches(3), max_tokens=4))


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        (lambda rows: 3, "must return one length for each of the 2 rows of a ColumnarBatch, got"),
        (lambda rows: [1, 2, 3], "must return one length for each of the 2 rows"),
        (
            lambda rows: [1.0, 2.0],
            "sample 0: batch.length must return a whole number >= 0, got 1",
        ),
        (lambda rows: [1, -1], "sample 1: batch.length must return a whole number >= 0, got -1"),
        (lambda rows: [1, 7], "sample 1: batch.max_tokens must be at least the length of every"),
    ],
)
def test_lengths_of_rows_are_checked(lengths, message):
    with pytest.raises(FieldError, match=message):
        list(batch(lambda: record_batches(2), max_tokens=4, length=lengths))


def test_a_row_that_is_too_long_is_numbered_over_all_record_batches():
    parts = [sequences(1, 2), sequences(1, 9)]
    taken, error = taken_until(batch(lambda: parts, max_tokens=4))
    assert [len(rows) for rows in taken] == [3]
    assert "sample 3: batch.max_tokens must be at least the length of every sample" in str(error)


def test_rows_are_packed_and_fed_as_they_are():
    rows = sequences(3, 2, 1, 2)
    bins = list(batch(lambda: [rows], max_tokens=4, pack=True))
    assert [bin_.columns["ids"].lod() for bin_ in bins] == [[[0, 3, 4]], [[0, 2, 4]]]
    assert [bin_.columns["ids"].data.tolist() for bin_ in bins] == [[0, 1, 2, 5], [3, 4, 6, 7]]
    with program_guard(Program()):
        fields = [data("label", [1], "int64"), data("ids", [1], "int64", lod_level=1)]
        feeder = DataFeeder(fields, "cpu")
    reader = feeder.decorate_reader(batch(lambda: [rows], max_tokens=4, pack=True))
    feeds = [(feed["label"].numpy().tolist(), feed["ids"].lod()) for feed in reader]
    assert feeds == [([[0], [2]], [[0, 3, 4]]), ([[1], [3]], [[0, 2, 4]])]
    assert reader.stats().batches.fill == 1


def test_a_run_of_rows_is_gathered_without_a_copy():
    (whole,) = record_batches(5)
    run = gather_rows([(whole, 1), (whole, 2)])
    assert np.shares_memory(run.columns["x"], whole.columns["x"])


def test_rows_of_several_record_batches_keep_their_order():
    first, second = record_batches(3, 3)
    rows = gather_rows([(second, 0), (first, 2), (second, 1), (first, 0)])
    assert rows.columns["x"].tolist() == [3, 2, 4, 0]


def test_batches_are_measured():
    reader = batch(lambda: [sequences(1, 3), sequences(2)], max_tokens=4)
    list(reader)
    stats = reader.stats()
    assert (stats.num_samples, stats.num_tokens, stats.num_padded_tokens) == (3, 6, 8)
    plain = batch(lambda: [sequences(1, 3)], 2)
    list(plain)
    assert plain.stats().num_samples == 2


def test_batching_samples_imports_no_tensors():
    code = (
        "import sys; from gpufeed.reader import batch; "
        "list(batch(lambda: [1, 2], 2)), list(batch(lambda: [], 2)), "
        "list(batch(lambda: [[1], [2]], max_tokens=2, pack=True)); "
        "print({'gpufeed.columnar', 'gpufeed.tensor'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"
