from __future__ import annotations

import copy
import gc
import pickle
import weakref
from fractions import Fraction

import numpy as np
import pytest
from support.batches import assert_same

from gpufeed.device import virtual_devices
from gpufeed.errors import FieldError, LoDError, PlaceError
from gpufeed.places import CPUPlace, CUDAPinnedPlace, CUDAPlace
from gpufeed.tensor import LoDTensor

CUDA = CUDAPlace(0)


@pytest.fixture
def device():
    with virtual_devices(2):
        yield


@pytest.fixture
def nested() -> LoDTensor:
    """Two samples, of 2 and 1 sentences, of 3, 2 and 4 words of two numbers."""
    return LoDTensor(np.arange(18).reshape(9, 2), lod=[[0, 2, 3], [0, 3, 5, 9]])


class FakeLease:
    def __init__(self) -> None:
        self.streams: list[object] = []

    def record_stream(self, stream: object) -> None:
        self.streams.append(stream)


def with_lease(tensor: LoDTensor) -> tuple[LoDTensor, FakeLease]:
    lease = FakeLease()
    return LoDTensor._assemble(tensor.data, tensor._lod, tensor.place, lease=lease), lease


def test_an_array_is_taken_without_a_copy():
    rows = np.arange(6.0)
    assert LoDTensor(rows).data is rows


def test_a_tensor_before_set():
    t = LoDTensor()
    assert t.shape == (0,)
    assert t.lod_level == 0
    t.set_recursive_sequence_lengths([[1, 2, 3]])  # any LoD will do as long as there are no rows
    assert t.has_valid_recursive_sequence_lengths()
    t.set(np.zeros((6, 1), np.float32))
    assert t.has_valid_recursive_sequence_lengths()
    assert t.lod() == [[0, 1, 3, 6]]


def test_set_copies_and_keeps_a_lod_that_no_longer_fits():
    rows = np.arange(6)[::2]
    t = LoDTensor([0, 0, 0], lod=[[0, 1, 3]])
    t.set(rows)
    rows[:] = 9
    assert t.to_list() == [[0], [2, 4]]
    t.set([1, 2])
    assert t.lod() == [[0, 1, 3]]
    assert not t.has_valid_recursive_sequence_lengths()


@pytest.mark.parametrize(
    "use",
    [
        lambda t: t[0],
        lambda t: t[:1],
        lambda t: t[[0]],
        list,
        lambda t: t.split(2),
        lambda t: LoDTensor.merge([t, t]),
        LoDTensor.to_list,
        LoDTensor.to_padded,
        LoDTensor.cu_seqlens,
        LoDTensor.mask,
        LoDTensor.to_arrow,
        LoDTensor.to_torch_nested,
    ],
)
def test_a_lod_that_does_not_fit_is_never_used(use):
    t = LoDTensor([0, 0, 0], lod=[[0, 1, 3]])
    t.set([1, 2])
    with pytest.raises(LoDError, match=r"LoDTensor\.lod level 0 must cover 2 rows, got 3"):
        use(t)


def test_a_wrong_lod_leaves_the_tensor_as_it_was():
    t = LoDTensor([1, 2, 3], lod=[[0, 1, 3]])
    with pytest.raises(LoDError, match=r"LoDTensor\.lod level 0 must cover 3 rows, got 2"):
        t.set_lod([[0, 2]])
    with pytest.raises(LoDError, match=r"recursive_sequence_lengths level 0 must cover 3 rows"):
        t.set_recursive_sequence_lengths([[1]])
    assert t.lod() == [[0, 1, 3]]
    t.set_lod([])
    assert t.lod_level == 0


@pytest.mark.parametrize(
    "dtype", ["bool", "float16", "float32", "int8", "uint8", "int64", "uint16"]
)
def test_dtypes_are_kept(dtype):
    assert LoDTensor(np.ones(3, dtype)).dtype == dtype


@pytest.mark.parametrize("data", [["a"], [None], np.array([{}]), np.array(["2020"], "M8[D]")])
def test_only_numbers_are_data(data):
    with pytest.raises(FieldError, match=r"LoDTensor\.data must hold numbers or bools"):
        LoDTensor(data)


def test_ragged_lists_are_not_rows():
    with pytest.raises(FieldError, match="must be rectangular"):
        LoDTensor([[1, 2], [3]])


def test_a_tensor_is_not_data():
    with pytest.raises(FieldError, match=r"got LoDTensor; use create_lod_tensor"):
        LoDTensor(LoDTensor([1]))


def test_foreign_byte_order_becomes_native():
    t = LoDTensor(np.array([1, 2], ">i4"))
    assert t.dtype.isnative
    assert t.to_list() == [1, 2]


def test_a_scalar_has_no_rows():
    assert LoDTensor(np.float32(3)).shape == ()
    assert LoDTensor(np.float32(3)).to_list() == 3
    with pytest.raises(TypeError):
        len(LoDTensor(np.float32(3)))
    with pytest.raises(LoDError, match="must cover 0 rows, got 1"):
        LoDTensor(np.float32(3), lod=[[0, 1]])


def test_indexing_takes_one_level_off(nested):
    assert nested[0].lod() == [[0, 3, 5]]
    assert nested[-1].to_list() == [nested.data[5:9].tolist()]
    assert nested[0][1].tolist() == [[6, 7], [8, 9]]
    assert nested[0][1].base is not None
    assert LoDTensor([5, 6])[1] == 6


def test_slicing_keeps_the_lod_and_the_memory(nested):
    tail = nested[1:]
    assert tail.lod() == [[0, 1], [0, 4]]
    assert np.shares_memory(tail.data, nested.data)
    assert nested[2:].lod() == [[0], [0]]
    assert nested[1:0].shape == (0, 2)


def test_samples_can_be_picked_by_number_or_mask(nested):
    assert nested[[1, 0, -1]].recursive_sequence_lengths() == [[1, 2, 1], [4, 3, 2, 4]]
    assert_same(nested[[False, True]], nested[1:])
    assert nested[[]].lod() == [[0], [0]]
    assert nested[::-1].to_list() == nested.to_list()[::-1]


@pytest.mark.parametrize("index", [2, -3, [2], [0, -3], [[0]], [0.5], [True], "a"])
def test_an_index_out_of_range_or_kind(nested, index):
    with pytest.raises((IndexError, TypeError)):
        nested[index]


def test_split_starts_every_level_at_0_again():
    t = LoDTensor(np.arange(20), lod=[[0, 2, 4, 5, 6], [0, 1, 6, 8, 13, 15, 20]])
    first, second = t.split(2)
    assert first.lod() == [[0, 2, 4], [0, 1, 6, 8, 13]]
    assert second.lod() == [[0, 1, 2], [0, 2, 7]]
    assert np.shares_memory(first.data, t.data)
    assert_same(LoDTensor.merge([first, second]), t)


def test_split_at_trailing_empty_sequences():
    t = LoDTensor(np.arange(10))
    t.set_recursive_sequence_lengths([[1, 2, 3, 4, 0]])
    parts = t.split(3)
    assert [part.recursive_sequence_lengths() for part in parts] == [[[1, 2]], [[3, 4]], [[0]]]


def test_split_of_no_samples_gives_every_device_its_share_of_nothing():
    parts = LoDTensor(np.empty((0, 3)), lod=[[0]]).split(3)
    assert [(part.shape, part.lod()) for part in parts] == [((0, 3), [[0]])] * 3


def test_merge_with_an_empty_first_part():
    rows = LoDTensor(np.ones((3, 1), np.float32))
    merged = LoDTensor.merge([LoDTensor(np.empty((0, 1), np.float32)), rows])
    assert_same(merged, rows)
    assert_same(LoDTensor.merge([LoDTensor(), rows]), rows)


def test_merge_counts_empty_sequences_of_a_part_without_rows():
    empty = LoDTensor(np.empty((0, 1), np.float32), lod=[[0, 0, 0]])
    full = LoDTensor(np.ones((3, 1)), lod=[[0, 1, 3]])
    merged = LoDTensor.merge([empty, full])
    assert merged.recursive_sequence_lengths() == [[0, 0, 1, 2]]
    assert merged.dtype == np.float64  # that of the rows, whatever an empty part says


def test_merge_copies_and_leaves_its_parts_alone():
    one, two = LoDTensor([1, 2], lod=[[0, 2]]), LoDTensor([3], lod=[[0, 1]])
    merged = LoDTensor.merge([one, two])
    merged.data[:] = 0
    assert (one.to_list(), two.to_list(), two.lod()) == ([[1, 2]], [[3]], [[0, 1]])


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        ([], FieldError, "must be of this type, got none"),
        ([np.ones(3)], FieldError, "must be of this type, got ndarray"),
        ([LoDTensor([1]), LoDTensor([1.0])], FieldError, "one dtype and item shape, got float64"),
        ([LoDTensor([1]), LoDTensor([[1]])], FieldError, "one dtype and item shape"),
        (
            [LoDTensor([1]), LoDTensor([1], lod=[[0, 1]])],
            LoDError,
            r"equally many LoD levels, got \[0, 1\]",
        ),
    ],
)
def test_parts_that_do_not_merge(parts, error, message):
    with pytest.raises(error, match=message):
        LoDTensor.merge(parts)


@pytest.mark.usefixtures("device")
def test_parts_on_different_places_do_not_merge():
    t = LoDTensor([1, 2])
    with pytest.raises(PlaceError, match=r"one place, got cpu, cuda:0; use part\.to\(place\)"):
        LoDTensor.merge([t, t.to(CUDA)])


def test_padded_and_back(nested):
    padded, lengths = nested.to_padded(pad_value=-1)
    assert padded.shape == (3, 4, 2)
    assert padded[1].tolist() == [[6, 7], [8, 9], [-1, -1], [-1, -1]]
    assert lengths.tolist() == [3, 2, 4]
    assert_same(LoDTensor.from_padded(padded, lengths, upper_lod=[[0, 2, 3]]), nested)


def test_max_length_is_the_width_both_ways():
    t = LoDTensor([1, 2, 3, 4], lod=[[0, 3, 4]])
    narrow, lengths = t.to_padded(max_length=2)
    assert (narrow.tolist(), lengths.tolist()) == ([[1, 2], [4, 0]], [2, 1])
    wide, lengths = t.to_padded(max_length=4)
    assert (wide.shape, lengths.tolist()) == ((2, 4), [3, 1])
    assert t.mask(max_length=2).tolist() == [[True, True], [True, False]]


def test_padding_of_nothing():
    padded, lengths = LoDTensor(np.empty((0, 3)), lod=[[0]]).to_padded()
    assert (padded.shape, lengths.shape) == ((0, 0, 3), (0,))
    padded, lengths = LoDTensor(np.empty((0, 3)), lod=[[0, 0]]).to_padded()
    assert (padded.shape, lengths.tolist()) == ((1, 0, 3), [0])


@pytest.mark.parametrize("value", [0.5, float("nan"), 300, -1, 2**70, None, "0", [0]])
def test_a_pad_value_must_fit_the_dtype(value):
    with pytest.raises(FieldError, match=r"\.pad_value must be a number that uint8 can hold, got"):
        LoDTensor(np.ones(2, np.uint8), lod=[[0, 2]]).to_padded(value)


def test_what_is_finite_does_not_become_infinite():
    halves = LoDTensor(np.ones(2, np.float16), lod=[[0, 2, 2]])
    with pytest.raises(FieldError, match="pad_value must be a number that float16 can hold, got"):
        halves.to_padded(1e5)
    assert np.isinf(halves.first_step(float("inf"))[1])


@pytest.mark.parametrize("value", [-(10**30), Fraction(1, 3)])
def test_numbers_that_numpy_has_no_dtype_for_pad_floats(value):
    padded, _ = LoDTensor([1.0], lod=[[0, 0, 1]]).to_padded(value)
    assert padded.tolist() == [[float(value)], [1.0]]


def test_nan_pads_floats():
    padded, _ = LoDTensor([1.0], lod=[[0, 0, 1]]).to_padded(float("nan"))
    assert np.isnan(padded[0, 0])


def test_padding_needs_a_lod_and_a_width():
    with pytest.raises(LoDError, match=r"LoDTensor\.lod must have a level for this, got \[\]"):
        LoDTensor([1]).to_padded()
    with pytest.raises(FieldError, match="max_length must be a whole number >= 0, got -1"):
        LoDTensor([1], lod=[[0, 1]]).to_padded(max_length=-1)


@pytest.mark.parametrize(
    ("padded", "lengths", "error", "message"),
    [
        ([1, 2], [1], FieldError, r"must be \(sequences, max_length, ...\), got shape \(2,\)"),
        ([[1, 2]], [3], LoDError, "must be 1 numbers up to 2, got 1 up to 3"),
        ([[1, 2]], [1, 1], LoDError, "must be 1 numbers up to 2, got 2 up to 1"),
        ([[1, 2]], [-1], LoDError, "must hold lengths >= 0, got -1"),
        ([[1, 2]], [0.5], LoDError, "must be a flat list of whole numbers"),
    ],
)
def test_lengths_that_do_not_fit_what_was_padded(padded, lengths, error, message):
    with pytest.raises(error, match=message):
        LoDTensor.from_padded(padded, lengths)


def test_strided_rows_are_padded(nested):
    strided = LoDTensor(np.repeat(nested.data, 2, axis=0)[::2], lod=nested.lod())
    padded, lengths = strided.to_padded()
    assert padded.tolist() == nested.to_padded()[0].tolist()
    turned = np.asfortranarray(padded)
    again = LoDTensor.from_padded(turned, lengths, upper_lod=nested.lod()[:1])
    assert again.to_list() == nested.to_list()


@pytest.mark.parametrize("dtype", ["uint16", "uint64", "complex64"])
def test_what_kernels_do_not_know_is_said_in_the_methods_own_words(dtype):
    rows = np.ones((2, 1), dtype)
    with pytest.raises(FieldError, match=rf"^LoDTensor\.to_padded must be of .*, got {dtype}"):
        LoDTensor(rows, lod=[[0, 2]]).to_padded()
    with pytest.raises(FieldError, match=rf"^LoDTensor\.from_padded\.padded must .* got {dtype}"):
        LoDTensor.from_padded(rows, [1, 1])


def test_attention_takes_row_offsets_of_any_level(nested):
    assert nested.cu_seqlens().tolist() == [0, 3, 5, 9]
    assert nested.cu_seqlens(0).tolist() == [0, 5, 9]
    assert nested.cu_seqlens().dtype == np.int32
    assert (nested.max_seqlen(), nested.max_seqlen(0)) == (4, 5)
    assert nested.segment_ids().tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 2]
    assert nested.segment_ids(0).tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1]
    assert nested.positions().tolist() == [0, 1, 2, 0, 1, 0, 1, 2, 3]
    assert nested.positions(0).tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3]
    assert nested.mask().tolist() == [[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]]
    assert nested.mask(side="left").tolist() == [[0, 1, 1, 1], [0, 0, 1, 1], [1, 1, 1, 1]]
    assert LoDTensor(np.empty(0), lod=[[0]]).max_seqlen() == 0


def test_offsets_are_wider_past_two_gibirows():
    rows = np.broadcast_to(np.int8(0), 2**31)  # one byte of memory
    assert LoDTensor(rows, lod=[[0, 2**31]]).cu_seqlens().tolist() == [0, 2**31]


def test_a_feeders_offsets_are_used_and_dropped_with_the_lod(nested):
    sent = tuple(level.astype(np.int32) for level in nested._lod)
    t = LoDTensor._assemble(nested.data, nested._lod, CPUPlace(), sent)
    assert t.cu_seqlens() is sent[-1]
    t.set_lod([[0, 9]])
    assert t.cu_seqlens().tolist() == [0, 9]


@pytest.mark.parametrize("level", [2, -3])
def test_there_is_no_such_level(nested, level):
    with pytest.raises(LoDError, match=r"LoDTensor\.level must be in \[-2, 2\), got"):
        nested.cu_seqlens(level)


@pytest.mark.usefixtures("device")
def test_places_are_changed_by_name_only(nested):
    there = nested.to("cuda:0")
    assert there.place == CUDA
    assert there.lod() == nested.lod()
    assert not np.shares_memory(there.data, nested.data)
    assert there.to(CUDA) is there
    assert_same(there.to("cpu"), nested)
    assert there.numpy().tolist() == nested.data.tolist()
    assert there[0].place == CUDA
    for convert in (np.asarray, np.array, LoDTensor.to_arrow, LoDTensor.to_awkward):
        with pytest.raises(TypeError, match="is on cuda:0 and is not copied unasked"):
            convert(there)


@pytest.mark.usefixtures("device")
def test_a_device_computes_what_the_host_does(nested):
    there = nested.to(CUDA)
    for method in ("cu_seqlens", "segment_ids", "positions", "mask"):
        on_device, on_host = getattr(there, method)(), getattr(nested, method)()
        assert on_device.dtype == on_host.dtype
        assert on_device.tolist() == on_host.tolist()
    assert there.segment_ids(0).tolist() == nested.segment_ids(0).tolist()
    assert there.to_padded()[0].tolist() == nested.to_padded()[0].tolist()
    assert_same(there[[1, 0]].to("cpu"), nested[[1, 0]])
    assert_same(LoDTensor.merge(there.split(2)), there)


def test_a_device_that_is_not_there():
    with virtual_devices(1), pytest.raises(PlaceError, match=r"CUDAPlace\(3\)"):
        LoDTensor([1], place="cuda:3")


def test_an_unset_tensor_changes_places():
    with virtual_devices(1):
        t = LoDTensor().to(CUDA)
        assert t.place == CUDA
        t.set([1, 2])
        assert (t.place, t.numpy().tolist()) == (CUDA, [1, 2])


def test_numpy_on_the_host_is_the_data():
    with virtual_devices(1):
        t = LoDTensor([1, 2], place=CUDAPinnedPlace())
    assert t.numpy() is t.data
    assert np.asarray(t).tolist() == [1, 2]
    assert np.asarray(t, np.float32).dtype == np.float32
    assert not np.shares_memory(np.array(t, copy=True), t.data)
    assert np.shares_memory(np.asarray(t), t.data)
    assert not hasattr(t, "__cuda_array_interface__")


def test_dlpack_shares_memory():
    t = LoDTensor(np.arange(4.0))
    assert np.shares_memory(np.from_dlpack(t), t.data)
    copied = np.from_dlpack(t, copy=True)
    assert not np.shares_memory(copied, t.data)


def test_data_from_dlpack_is_not_copied():
    class Foreign:
        def __init__(self, rows: np.ndarray) -> None:
            self.__dlpack__ = rows.__dlpack__
            self.__dlpack_device__ = rows.__dlpack_device__

    rows = np.arange(4.0)
    assert np.shares_memory(LoDTensor.from_dlpack(Foreign(rows), [[0, 4]]).data, rows)


def test_a_lease_hears_of_every_stream_and_follows_every_view(nested):
    t, lease = with_lease(nested)
    t.record_stream("a")
    t[0].record_stream("b")
    t[1:].record_stream("c")
    for part in t.split(2):
        part.record_stream("d")
    for sample in t:
        sample.record_stream("e")
    assert lease.streams == ["a", "b", "c", "d", "d", "e", "e"]
    t[[1, 0]].record_stream("a copy needs no lease")
    assert len(lease.streams) == 7


def test_dlpack_tells_the_lease_which_stream_reads():
    class OnDevice:
        def __len__(self) -> int:
            return 1

        def __dlpack__(self, **said: object) -> object:
            return said

        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

    lease = FakeLease()
    t = LoDTensor._assemble(OnDevice(), (), CUDA, lease=lease)
    assert t.__dlpack_device__() == (2, 0)
    assert t.__dlpack__(stream=7, max_version=(1, 0)) == {"stream": 7, "max_version": (1, 0)}
    assert t.__dlpack__(stream=-1) == {"stream": -1}
    assert lease.streams == [7]


def test_a_view_keeps_the_lease_alive(nested):
    t, lease = with_lease(nested)
    alive = weakref.ref(lease)
    view = t[0]
    del t, lease
    gc.collect()
    assert alive() is not None
    del view
    gc.collect()
    assert alive() is None


@pytest.mark.usefixtures("device")
def test_pickle_restores_rows_lod_and_place(nested):
    for t in (nested, nested[1:], nested.to(CUDA), LoDTensor([1, 2])):
        assert_same(pickle.loads(pickle.dumps(t)), t)
        assert_same(copy.deepcopy(t), t)
    unset = pickle.loads(pickle.dumps(LoDTensor(lod=[[0, 3]])))
    unset.set([1, 2, 3])
    assert unset.to_list() == [[1, 2, 3]]


def test_pickle_leaves_large_rows_out_of_band():
    t = LoDTensor(np.zeros(1 << 16))
    buffers: list[pickle.PickleBuffer] = []
    assert len(pickle.dumps(t, protocol=5, buffer_callback=buffers.append)) < 1000


def test_repr_is_short():
    t = LoDTensor(np.zeros((100, 3), np.float32), lod=[list(range(101))])
    assert repr(t) == (
        "LoDTensor(shape=(100, 3), dtype=float32, lod=[[0, 1, 2, 3, 4, 5, ...]], place=cpu)"
    )


def test_merge_takes_any_iterable():
    t = LoDTensor([7, 8, 9], lod=[[0, 2, 2, 3]])
    assert LoDTensor.merge(part for part in t.split(2)).to_list() == t.to_list()
    with pytest.raises(FieldError, match="must be of this type, got none"):
        LoDTensor.merge(iter(()))
