"""`ray_dataset`, against a stand-in with the documented interface of ``ray.data.Dataset``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import islice
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from gpufeed import creator
from gpufeed.columnar import ColumnarBatch
from gpufeed.errors import FieldError, MissingExtra, ReaderError
from gpufeed.reader import batch
from gpufeed.tensor import LoDTensor

pa = pytest.importorskip("pyarrow")

IDS = [[1, 2], [], [3], [4, 5, 6], [7]]
LABELS = [1, 0, 1, 1, 0]


class Dataset:
    """Gives tables as ``iter_batches`` does, each of several chunks; counts what is open."""

    def __init__(self, *tables: Any) -> None:
        self.tables = tables
        self.num_open = self.num_given = 0
        self.asked: dict[str, Any] = {}

    def iter_batches(self, **options: Any) -> Iterator[Any]:
        self.asked = options
        self.num_open += 1
        try:
            for table in self.tables:
                self.num_given += 1
                yield table
        finally:
            self.num_open -= 1


@pytest.fixture
def dataset() -> Dataset:
    """Tables of 3, 0 and 2 rows, the first in chunks of 1 and 2."""
    table = pa.table({"ids": IDS, "label": LABELS})
    return Dataset(pa.concat_tables([table[:1], table[1:3]]), table[:0], table[3:])


def test_rows_are_tuples_with_arrays_for_lists(dataset: Dataset) -> None:
    rows = list(creator.ray_dataset(dataset, ["label", "ids"]))

    assert [(label, ids.tolist()) for label, ids in rows] == list(zip(LABELS, IDS, strict=True))
    assert dataset.asked["batch_format"] == "pyarrow"
    assert dataset.asked["batch_size"] is None
    assert dataset.num_open == 0


def test_blocks_are_columns_over_their_memory(dataset: Dataset) -> None:
    batches = list(creator.ray_dataset(dataset, columnar=True, prefetch_batches=4))

    assert [len(columns) for columns in batches] == [1, 2, 2]
    whole = ColumnarBatch.concat(batches).columns
    assert isinstance(whole["ids"], LoDTensor)
    assert whole["ids"].to_list() == IDS
    last = dataset.tables[2]["ids"].chunk(0).values.to_numpy()
    assert np.shares_memory(batches[2].columns["ids"].data, last)
    assert dataset.asked["prefetch_batches"] == 4


@pytest.mark.parametrize("columnar", [False, True])
def test_skipping_equals_draining(dataset: Dataset, columnar: bool) -> None:
    reader = creator.ray_dataset(dataset, ["label"], columnar=columnar, order=True)
    labels = [repr(sample) for sample in reader]

    for skip in range(len(labels) + 2):
        assert [repr(sample) for sample in reader.open(0, skip)] == labels[skip:]


def test_batches_are_cut_from_blocks(dataset: Dataset) -> None:
    batches = list(batch(creator.ray_dataset(dataset, columnar=True), 2))

    assert [len(columns) for columns in batches] == [2, 2, 1]
    assert [columns.columns["label"].tolist() for columns in batches] == [[1, 0], [1, 1], [0]]


def test_leaving_early_ends_the_pass_of_ray(dataset: Dataset) -> None:
    rows = creator.ray_dataset(dataset)()

    assert len(list(islice(rows, 2))) == 2
    assert (dataset.num_open, dataset.num_given) == (1, 1)
    del rows
    assert dataset.num_open == 0


def test_only_data_in_a_known_order_is_resumed(dataset: Dataset) -> None:
    unordered = creator.ray_dataset(dataset)
    with pytest.raises(ReaderError, match=r"ray_dataset gets blocks in the order .* order=True"):
        unordered.state_dict()

    reader = creator.ray_dataset(dataset, ["label"], order=True)
    assert len(list(islice(reader(), 2))) == 2
    state = json.loads(json.dumps(reader.state_dict()))
    again = creator.ray_dataset(dataset, ["label"], order=True)
    again.load_state_dict(state)
    assert [label for (label,) in again] == LABELS[2:]


def test_shards_share_the_rows_in_a_known_order(dataset: Dataset) -> None:
    parts = [
        creator.ray_dataset(dataset, ["label"], order=True, shard=(2, index)) for index in range(2)
    ]

    assert [[label for (label,) in part] for part in parts] == [LABELS[::2], LABELS[1::2]]
    with pytest.raises(FieldError, match=r"ray_dataset.order must be True with shard"):
        creator.ray_dataset(dataset, shard=(2, 0))


def test_nulls_name_column_and_row() -> None:
    dataset = Dataset(pa.table({"x": [1, 2]}), pa.table({"x": [3, None]}))

    with pytest.raises(
        FieldError, match=r"^ray_dataset, column 'x' must hold no nulls, .* in row 3$"
    ):
        list(creator.ray_dataset(dataset))
    assert list(creator.ray_dataset(dataset, fill_null={"x": 0})) == [(1,), (2,), (3,), (0,)]


def test_a_missing_column_is_named(dataset: Dataset) -> None:
    with pytest.raises(FieldError, match=r"ray_dataset: expected one column 'no', got .* ids, l"):
        list(creator.ray_dataset(dataset, ["no"]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": "ids"}, "ray_dataset.columns must be a list of different names"),
        ({"fill_null": 0}, "ray_dataset.fill_null must map columns"),
        ({"prefetch_batches": -1}, "ray_dataset.prefetch_batches must be a whole number >= 0"),
    ],
)
def test_options_are_checked_at_once(
    dataset: Dataset, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(FieldError, match=message):
        creator.ray_dataset(dataset, **options)


def test_a_name_is_the_split_of_a_training_worker(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shard_of(name: str) -> Dataset:
        return {"train": dataset}[name]

    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    monkeypatch.setitem(
        sys.modules, "ray.train", cast(ModuleType, SimpleNamespace(get_dataset_shard=shard_of))
    )

    assert [label for (label,) in creator.ray_dataset("train", ["label"])] == LABELS


def test_without_ray_a_name_asks_for_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", cast(ModuleType, None))  # as if it were not there

    with pytest.raises(MissingExtra, match=r"ray.* is not installed: pip install 'gpufeed\[ray\]'"):
        creator.ray_dataset("train")


def test_other_objects_are_refused_at_once() -> None:
    with pytest.raises(FieldError, match=r"ray_dataset.dataset must have iter_batches, got \[\]"):
        creator.ray_dataset([])


def test_columnar_readers_say_so(dataset: Dataset) -> None:
    assert creator.ray_dataset(dataset, columnar=True).is_columnar
    assert not creator.ray_dataset(dataset).is_columnar
