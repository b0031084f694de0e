"""Every form a column may be given in, and every shape: the values arrive unchanged."""

from __future__ import annotations

from collections import namedtuple
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from support.columns import csr, feed_column

from gpufeed.errors import FieldError
from gpufeed.tensor import LoDTensor

Entry = namedtuple("Entry", "index value")
array = np.array


def check(tensor, values, lengths=(), shape=None):
    assert tensor.data.ravel().tolist() == values
    assert tensor.recursive_sequence_lengths() == list(lengths)
    if shape is not None:
        assert tensor.shape == shape


class TestDense:
    @pytest.mark.parametrize(
        "row",
        [
            [0, 1, 2, 3],
            (0, 1, 2, 3),
            range(4),
            [[0, 1], [2, 3]],
            ((0, 1), (2, 3)),
            [array([0, 1]), [2, 3]],
            [np.int8(0), 1, np.float64(2), True + 2],
            array([0, 1, 2, 3], "f4"),
            array([0, 1, 2, 3], ">f8"),
            array([0, 1, 2, 3], "u1"),
            array([0, 1, 2, 3], object),
            array([[0, 1], [2, 3]], "f2"),
            array([[0, 2], [1, 3]], "f4").T,
            np.arange(8.0, dtype="f4")[::2] / 2,
            np.arange(3.0, -1.0, -1.0, dtype="f4")[::-1],
            LoDTensor(np.arange(4)),
            array([0, 1, 2, 3]).astype("m8[s]").astype("i8"),
            [Decimal(0), Fraction(1), 2, 3],
        ],
        ids=lambda row: f"{type(row).__name__}-{getattr(row, 'dtype', '')}",
    )
    def test_a_row_may_take_many_forms(self, row):
        check(feed_column([row], [2, 2]), [0, 1, 2, 3], shape=(1, 2, 2))
        check(feed_column([row, [4, 5, 6, 7]], [2, 2]), list(range(8)))
        check(feed_column([np.arange(4, 8, dtype="f4"), row], [2, 2]), [4, 5, 6, 7, 0, 1, 2, 3])
        check(feed_column([[[4, 5], [6, 7]], row], [2, 2]), [4, 5, 6, 7, 0, 1, 2, 3])

    @pytest.mark.parametrize("shape", [[1], [-1], [1, 1]])
    def test_one_value_may_take_many_forms(self, shape):
        rows = [3, np.int8(4), array(5), [6], (7,), array([8]), array([10], ">u2")]
        for first in range(len(rows)):
            order = rows[first:] + rows[:first]
            expected = [int(row[0] if np.ndim(row) else row) for row in order]
            check(feed_column(order, shape, "int64"), expected)

    def test_an_integer_label_is_the_common_case(self):
        check(feed_column([3, 1, 2], [1], "int64"), [3, 1, 2], shape=(3, 1))

    def test_open_dimensions_take_the_first_rows_size(self):
        rows = [[[1, 2]], array([[3, 4]])]
        check(feed_column(rows, [None, None, 2]), [1, 2, 3, 4], shape=(2, 1, 2))

    @pytest.mark.parametrize(
        ("rows", "shape"),
        [
            ([[], []], [0]),
            ([[], np.empty((0, 3))], [0, 3]),
            ([[[], []], np.empty((2, 0))], [2, 0]),
        ],
    )
    def test_rows_may_be_of_size_0(self, rows, shape):
        assert feed_column(rows, shape).shape == (2, *shape)

    def test_a_fixed_batch_dimension_is_kept(self):
        rows = [[1, 2, 3], [4, 5, 6]]
        tensor = feed_column(rows, [2, 3], append_batch_size=False)
        check(tensor, [1, 2, 3, 4, 5, 6], shape=(2, 3))
        with pytest.raises(FieldError, match="field 'x': expected a batch of 2 rows, got 1"):
            feed_column(rows[:1], [2, 3], append_batch_size=False)

    def test_no_rows(self):
        check(feed_column([], [3]), [], shape=(0, 3))
        check(feed_column([], [None, None, 2]), [], shape=(0, 0, 2))

    def test_special_floats_survive(self):
        values = [float("nan"), float("inf"), -float("inf"), -0.0, 5e-324]
        for form in (values, array(values), tuple(values)):
            for dtype in ("float16", "float32", "float64"):
                data = feed_column([form], [5], dtype).data[0]
                np.testing.assert_array_equal(data, array(values).astype(dtype))
                assert np.signbit(data[3])

    def test_what_the_caller_makes_of_underflow_is_not_asked(self):
        for dtype in ("float16", "float32"):
            for form in ([1e-300], (1e-300,), array([1e-300]), array([1e-300], object)):
                with np.errstate(all="raise"):
                    check(feed_column([form, [1]], [1], dtype), [0, 1])


class TestSequences:
    @pytest.mark.parametrize(
        "sequence",
        [
            [1, 2, 3],
            (1, 2, 3),
            range(1, 4),
            [[1], [2], [3]],
            [(1,), array([2]), [3]],
            [array(1), np.uint64(2), np.True_ + 2],
            array([1, 2, 3]),
            array([[1], [2], [3]], "i1"),
            array([1, 2, 3], ">i8"),
            array([1, 2, 3], "u8"),
            array([1, 2, 3], object),
            np.arange(6)[1::2][:3] // 2 + 1,
            LoDTensor([1, 2, 3]),
            bytearray(b"\1\2\3"),
        ],
        ids=lambda value: f"{type(value).__name__}-{getattr(value, 'dtype', '')}",
    )
    def test_a_sequence_may_take_many_forms(self, sequence):
        feed = [sequence, [], [4], array([]), array([5, 6]), sequence]
        lengths = [[3, 0, 1, 0, 2, 3]]
        check(feed_column(feed, [1], "int64", 1), [1, 2, 3, 4, 5, 6, 1, 2, 3], lengths, (9, 1))
        check(feed_column([sequence], [1], "int64", 1), [1, 2, 3], [[3]])
        check(feed_column([[], sequence], [1], "float32", 1), [1, 2, 3], [[0, 3]])

    @pytest.mark.parametrize("empty", [[], (), array([]), array([], int), np.empty((0, 2, 3))])
    def test_an_empty_sequence_may_take_many_forms(self, empty):
        check(feed_column([empty, empty], [2, 3], "int64", 1), [], [[0, 0]], (0, 2, 3))
        mixed = [empty, [[[1, 2, 3], [4, 5, 6]]], empty]
        check(feed_column(mixed, [2, 3], "int64", 1), [1, 2, 3, 4, 5, 6], [[0, 1, 0]])

    def test_vectors_in_sequences(self):
        feed = [[[1, 2], [3, 4]], [], array([[5, 6]]), [array([7, 8])]]
        check(feed_column(feed, [2], "float32", 1), list(range(1, 9)), [[2, 0, 1, 1]], (4, 2))

    def test_open_dimensions_in_sequences(self):
        check(feed_column([[], [[1, 2]]], [None, None], "int64", 1), [1, 2], [[0, 1]], (1, 2))
        check(feed_column([[]], [None, None], "int64", 1), [], [[0]], (0, 0))

    @pytest.mark.parametrize(
        ("level", "samples", "values", "lengths"),
        [
            (1, [], [], [[]]),
            (1, [[]], [], [[0]]),
            (2, [], [], [[], []]),
            (2, [[]], [], [[0], []]),
            (2, [[[], []], []], [], [[2, 0], [0, 0]]),
            (2, [[[1], [2, 3]], [], [[]]], [1, 2, 3], [[2, 0, 1], [1, 2, 0]]),
            (2, [array([[1, 2], [3, 4]]), [array([5])]], [1, 2, 3, 4, 5], [[2, 1], [2, 2, 1]]),
            (2, [([1], (2,), array([3]), range(4, 5))], [1, 2, 3, 4], [[4], [1, 1, 1, 1]]),
            (3, [], [], [[], [], []]),
            (3, [[], [[]], [[[]]]], [], [[0, 1, 1], [0, 1], [0]]),
            (3, [[[[1], [2, 3]], []], [[[]]]], [1, 2, 3], [[2, 1], [2, 0, 1], [1, 2, 0]]),
            (3, [np.arange(8).reshape(2, 2, 2)], [*range(8)], [[2], [2, 2], [2, 2, 2, 2]]),
        ],
    )
    def test_levels_with_empties(self, level, samples, values, lengths):
        for strict in (True, False):
            tensor = feed_column(samples, [1], "int64", level, strict=strict)
            check(tensor, values, lengths, (len(values), 1))

    def test_a_lod_tensor_gives_its_sequences_to_two_levels(self):
        tensors = [LoDTensor([1, 2, 3], [[0, 1, 3]]), LoDTensor([4], [[0, 0, 1]])]
        check(feed_column(tensors, [1], "int64", 2), [1, 2, 3, 4], [[2, 2], [1, 2, 0, 1]])
        with pytest.raises(FieldError, match=r"sample 0: expected 2 rows, got shape \(3,\)"):
            feed_column(tensors, [1], "int64", 1)


class TestSparse:
    @pytest.mark.parametrize(
        "row",
        [
            *([3, 1], (3, 1), range(3, 0, -2), [array(3), 1]),
            *(array([3, 1]), array([3, 1], "u1"), array([3, 1], ">i4"), array([3, 1], object)),
            np.arange(4)[3:0:-2],
        ],
        ids=lambda row: f"{type(row).__name__}-{getattr(row, 'dtype', '')}",
    )
    def test_indices_may_take_many_forms(self, row):
        batches = [[row, [], [1, 1]], [[], row, array([]), array([0])], [array([2]), row]]
        wanted = [
            ([0, 2, 2, 4], [3, 1, 1, 1], None),
            ([0, 0, 2, 2, 3], [3, 1, 0], None),
            ([0, 1, 3], [2, 3, 1], None),
        ]
        for batch, expected in zip(batches, wanted, strict=True):
            assert csr(feed_column(batch, [5], layout="sparse_binary")) == expected

    @pytest.mark.parametrize(
        "row",
        [
            [(0, 5), (3, 2)],
            ((0, 5), [3, 2.0]),
            [Entry(0, 5), Entry(index=3, value=2)],
            [(np.int8(0), array(5)), (True * 3, np.float16(2))],
            (array([0, 3]), array([5, 2])),
            (array([0, 3], ">u2"), array([5, 2], "f2")),
            (array([0, 3]), [5, 2]),
            ([0, 3], array([5, 2])),
        ],
    )
    @pytest.mark.parametrize(
        "other",
        [[(1, 4)], [(1, 4), (2, 6)], (array([1]), array([4])), (array([1, 2]), array([4, 6]))],
    )
    def test_entries_may_take_many_forms_in_one_batch(self, row, other):
        """No order of rows may make a pair of arrays look like two (index, value) pairs."""
        ours, (indices, values) = [0, 3], ([1, 2], [4.0, 6.0])
        count = 1 if len(other[0]) == 1 or len(other) == 1 else 2
        theirs = indices[:count], values[:count]
        field = {"shape": [5], "layout": "sparse_float"}
        for empty in ([], (), (array([]), array([]))):
            got = csr(feed_column([empty, row, other], **field))
            assert got == ([0, 0, 2, 2 + count], ours + theirs[0], [5, 2, *theirs[1]])
            got = csr(feed_column([other, row, empty], **field))
            ends = [0, count, 2 + count, 2 + count]
            assert got == (ends, theirs[0] + ours, [*theirs[1], 5, 2])

    @pytest.mark.parametrize(
        "row", [[array([0, 3]), array([5, 2])], array([[0, 3], [5, 2]]), [{0, 5}], [{0: 1, 5: 2}]]
    )
    def test_what_could_be_read_in_two_ways_is_refused(self, row):
        message = r"sample 1: expected \(index, value\) pairs, or a tuple of two arrays, got"
        for other in ([], [(0, 1.0)], (array([0]), array([1.0]))):
            with pytest.raises(FieldError, match=message):
                feed_column([other, row], [9], layout="sparse_float")

    @pytest.mark.parametrize(
        ("level", "samples", "offsets", "indices", "lengths"),
        [
            (0, [], [0], [], []),
            (0, [[], []], [0, 0, 0], [], []),
            (1, [], [0], [], [[]]),
            (1, [[], [[]]], [0, 0], [], [[0, 1]]),
            (1, [[[3], []], [], [[1, 2]]], [0, 1, 1, 3], [3, 1, 2], [[2, 0, 1]]),
            (2, [[], [[]], [[[]]]], [0, 0], [], [[0, 1, 1], [0, 1]]),
            (2, [[[[3], []], []], [[[1, 2]]]], [0, 1, 1, 3], [3, 1, 2], [[2, 1], [2, 0, 1]]),
        ],
    )
    def test_sequences_of_rows(self, level, samples, offsets, indices, lengths):
        rows = feed_column(samples, [5], lod_level=level, layout="sparse_binary")
        assert csr(rows) == (offsets, indices, None)
        assert rows.recursive_sequence_lengths() == lengths

        def with_values(value, depth):
            if depth < 0:
                return value, value / 2
            return [with_values(inner, depth - 1) for inner in value]

        weighted = [with_values(sample, level) for sample in samples]
        rows = feed_column(weighted, [5], lod_level=level, layout="sparse_float")
        assert csr(rows) == (offsets, indices, [index / 2 for index in indices])
        assert rows.recursive_sequence_lengths() == lengths

    def test_array_pairs_in_sequences(self):
        pair = (array([0, 3]), array([0.5, 2]))
        samples = [[pair], [], [pair, [(1, 1)], (array([]), array([]))]]
        rows = feed_column(samples, [5], lod_level=1, layout="sparse_float")
        assert csr(rows) == ([0, 2, 4, 5, 5], [0, 3, 0, 3, 1], [0.5, 2, 0.5, 2, 1])
        assert rows.recursive_sequence_lengths() == [[1, 0, 3]]

    def test_densified_rows(self):
        options = {"shape": [4], "densify": True}
        binary = feed_column([[3, 1], [], [0]], layout="sparse_binary", **options)
        assert binary.data.tolist() == [[0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0]]
        floats = feed_column([[(3, 0.5), (1, 2)], []], layout="sparse_float", **options)
        assert floats.data.tolist() == [[0, 2, 0, 0.5], [0, 0, 0, 0]]
        nested = feed_column([[[1]], [], [[], [2]]], lod_level=1, layout="sparse_binary", **options)
        assert nested.recursive_sequence_lengths() == [[1, 0, 2]]
        assert nested.data.tolist() == [[0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]]
        assert feed_column([], layout="sparse_binary", **options).shape == (0, 4)

    def test_the_index_dtype_follows_dim(self):
        narrow = feed_column([[2**31 - 2]], [2**31 - 1], layout="sparse_binary")
        wide = feed_column([array([2**31]), [2**33 - 1]], [2**33], layout="sparse_binary")
        assert narrow.indices.dtype == np.int32
        assert wide.indices.dtype == np.int64
        assert wide.indices.tolist() == [2**31, 2**33 - 1]


class TestTorch:
    @pytest.fixture
    def torch(self):
        return pytest.importorskip("torch")

    def test_rows(self, torch):
        for rows in ([torch.ones(2, 2), [2, 3, 4, 5]], [[1, 1, 1, 1], torch.arange(2, 6)]):
            check(feed_column(rows, [2, 2]), [1, 1, 1, 1, 2, 3, 4, 5])
        rows = [torch.tensor(3), torch.tensor([4]), 5]
        check(feed_column(rows, [1], "int64"), [3, 4, 5])
        check(feed_column(rows[::-1], [1], "float32"), [5, 4, 3])

    def test_sequences(self, torch):
        column = torch.tensor([[1], [2]], dtype=torch.int16)
        for form in (torch.tensor([1, 2]), column, [torch.tensor(1), torch.tensor(2)]):
            for other in ([3], array([3]), torch.tensor([3])):
                for dtype in ("int64", "float32"):
                    check(feed_column([form, other, []], [1], dtype, 1), [1, 2, 3], [[2, 1, 0]])
                    check(feed_column([[], other, form], [1], dtype, 1), [3, 1, 2], [[0, 1, 2]])

    def test_sparse_rows(self, torch):
        indices = torch.tensor([0, 3])
        binary = feed_column([indices, [1]], [5], layout="sparse_binary")
        assert csr(binary) == ([0, 2, 3], [0, 3, 1], None)
        rows = [(indices, torch.tensor([5, 2])), [(1, 0.5)]]
        expected = ([0, 2, 3], [0, 3, 1], [5, 2, 0.5])
        assert csr(feed_column(rows, [5], layout="sparse_float")) == expected

    def test_what_torch_refuses_to_show_is_refused_in_its_words(self, torch):
        for level in (0, 1):
            with pytest.raises(FieldError, match=r"sample 0: .*requires grad"):
                feed_column([torch.ones(2, requires_grad=True)], [2 - level], "float32", level)
            with pytest.raises(FieldError, match=r"sample 0: .*BFloat16"):
                feed_column([torch.ones(1, dtype=torch.bfloat16)], [1], "float32", level)


class TestWire:
    def test_values_are_scaled_and_shifted_after_they_have_travelled(self):
        rows = [array([0, 255], "u1"), [51, 102]]
        tensor = feed_column(rows, [2], wire_dtype="uint8", scale=1 / 255, shift=-0.5)
        assert tensor.dtype == np.float32
        np.testing.assert_allclose(tensor.data, [[-0.5, 0.5], [-0.3, -0.1]], rtol=1e-6)

    def test_narrow_integers_are_widened(self):
        tensor = feed_column([[5, -1], []], [1], "int64", 1, wire_dtype="int32")
        check(tensor, [5, -1], [[2, 0]], (2, 1))
        assert tensor.dtype == np.int64

    @pytest.mark.parametrize("row", [[1, 256], array([1, 256]), array([-1, 0])])
    def test_values_must_fit_the_wire(self, row):
        with pytest.raises(FieldError, match=r"sample 1: expected uint8 values in \[0, 255\], got"):
            feed_column([[0, 0], row], [2], wire_dtype="uint8")

    def test_floats_do_not_fit_an_integer_wire(self):
        with pytest.raises(FieldError, match=r"sample 0: expected uint8 values, got float 0\.5"):
            feed_column([[0.5]], [1], wire_dtype="uint8")
