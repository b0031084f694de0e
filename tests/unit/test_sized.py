"""Sizes on their way to another process, and the columns that they make of what was written."""

import pickle

import numpy as np

from gpufeed.sized import SizedDense, SizedSparse, pack, unpack
from gpufeed.variables import Variable

INT32, UINT8 = np.dtype("int32"), np.dtype("uint8")


def levels(*offsets):
    return [np.array(level) for level in offsets]


def test_what_is_unpacked_is_what_was_packed():
    fields = [
        SizedDense(2, levels([0, 1, 3], [0, 2, 2, 5]), (5, 4), INT32, (5, 4), False),
        SizedDense(2, [], (2, 3), np.dtype(bool), (1,), True),
        SizedSparse(2, levels([0, 0, 1]), 1, 7),
    ]
    again = unpack(pickle.loads(pickle.dumps(pack(fields), 5)))
    assert list(map(type, again)) == list(map(type, fields))
    for field, same in zip(fields, again, strict=True):
        assert [level.tolist() for level in same.offsets] == [
            level.tolist() for level in field.offsets
        ]
        assert same[2:] == field[2:]
        assert same.num_samples == 2
        assert all(level.dtype == np.int64 and level.flags.writeable for level in same.offsets)


def test_fields_without_offsets_are_nothing_but_numbers():
    data, _ = pack([SizedSparse(0, [], 0, 0)])
    assert data == b""
    assert unpack((data, [])) == []


def test_bits_are_a_column_of_truth_values():
    values = np.array([[True, False, True], [False, False, True]])
    bits = np.packbits(values, bitorder="little")
    field = SizedDense(2, [], values.shape, UINT8, bits.shape, True)
    column = field.column(Variable("x", (-1, 3), np.dtype(bool)), [bits])
    assert column.data.dtype == np.bool_
    assert column.data.tolist() == values.tolist()


def test_other_columns_are_views():
    values = np.arange(6, dtype=np.int32).reshape(3, 2)
    field = SizedDense(2, levels([0, 1, 3]), values.shape, INT32, values.shape, False)
    column = field.column(Variable("x", (-1, 2), INT32, 1), [values, np.array([0, 1, 3], "int32")])
    assert column.data is values
    assert column.lod() == [[0, 1, 3]]
    rows = SizedSparse(2, [], 2, 3)
    variable = Variable("x", (-1, 9), np.dtype("float32"), 0, "sparse_float")
    wire = [np.array([0, 1, 3]), np.array([8, 0, 1]), np.ones(3, np.float32)]
    column = rows.column(variable, wire)
    assert column.shape == (2, 9)
    assert column.values is wire[2]
    binary = Variable("x", (-1, 9), np.dtype("float32"), 0, "sparse_binary")
    assert rows.column(binary, wire[:2]).values is None
