"""Creators over columnar data: Parquet files, Arrow files, Ray data sets.

Read as rows, a sample is a tuple with a field a column; the field of a list column is an array, a
view of the column. Read as columns, a sample is a whole record batch, a `ColumnarBatch`, which
`gpufeed.batch` cuts and a feeder takes without making a Python object a row.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any

from gpufeed.checks import whole_number
from gpufeed.creator.files import FilesReader, Paths, each_file
from gpufeed.device.threads import close_iterator
from gpufeed.errors import FieldError, import_extra
from gpufeed.formats.arrow_ipc import check_arrow, read_arrow
from gpufeed.formats.parquet import BATCH_ROWS, check_parquet, read_parquet
from gpufeed.formats.tables import Fill, check_table, to_columnar
from gpufeed.reader.base import Reader
from gpufeed.reader.shard import ShardedReader
from gpufeed.reader.sharding import ShardLike, as_shard

__all__ = ["arrow", "parquet", "ray_dataset"]


def parquet(
    path: Paths,
    columns: Sequence[str] | None = None,
    *,
    columnar: bool = False,
    fill_null: Fill | None = None,
    batch_rows: int = BATCH_ROWS,
    shard: ShardLike | None = None,
) -> Reader[Any]:
    """Read the rows of Parquet files, or their columns; needs the ``arrow`` extra.

    >>> import pyarrow, pyarrow.parquet
    >>> from tempfile import NamedTemporaryFile
    >>> table = pyarrow.table({"ids": [[7, 8], [], [9]], "label": [1, 0, 1]})
    >>> with NamedTemporaryFile(suffix=".parquet") as file:
    ...     pyarrow.parquet.write_table(table, file.name)
    ...     list(parquet(file.name, ["label", "ids"]).open(epoch=0, skip=2))
    ...     list(parquet(file.name, columnar=True))
    [(np.int64(1), array([9]))]
    [ColumnarBatch(3 samples: ids int64 lod_level=1, label int64)]

    Lists become sequences (nested ones: LoD levels), fixed-size lists item dimensions, text and
    bytes stay Python objects, dictionaries are decoded. Arrays are views and cannot be written to.

    Args:
        path: A file, a glob pattern, or a list of both.
        columns: Names, in the order wanted; None takes all. Others are not read.
        columnar: Whether a sample is a `ColumnarBatch` of up to ``batch_rows`` rows.
        fill_null: Column to what stands for its nulls, whose null lists become empty. In other
            columns a null is an error.
        batch_rows: Rows that are decoded at once; record batches end with row groups, too.
        shard: The part to read, as for `open`.

    Raises:
        FieldError: An option breaks its rule.
        FormatError: When iterated: a file is missing or damaged, a column is not there, holds
            nulls, or something that no field is made of, such as structs.
        MissingExtra: When iterated: pyarrow is not installed.
    """
    options: dict[str, Any] = {
        "columnar": bool(columnar),
        "fill_null": fill_null,
        "batch_rows": batch_rows,
    }
    check_parquet(columns, **options)
    files = each_file("parquet.path", path, read_parquet)
    return FilesReader("parquet", files, {"columns": columns, **options}, shard=shard)


def arrow(
    path: Paths,
    columns: Sequence[str] | None = None,
    *,
    columnar: bool = False,
    fill_null: Fill | None = None,
    shard: ShardLike | None = None,
) -> Reader[Any]:
    """Read Arrow IPC files, with an index (Feather, too) or as streams; needs the ``arrow`` extra.

    >>> import pyarrow
    >>> from tempfile import NamedTemporaryFile
    >>> table = pyarrow.table({"ids": [[7, 8], [], [9]], "label": [1, 0, 1]})
    >>> with NamedTemporaryFile(suffix=".arrow") as file:
    ...     with pyarrow.ipc.new_file(file.name, table.schema) as writer:
    ...         writer.write_table(table)
    ...     list(arrow(file.name, columnar=True))
    [ColumnarBatch(3 samples: ids int64 lod_level=1, label int64)]

    Columns are what they are for `parquet`, and views of a plain file's memory map.

    Args:
        path: A file, a glob pattern, or a list of both.
        columns: Names, in the order wanted; None takes all.
        columnar: Whether a sample is a `ColumnarBatch`, one a record batch.
        fill_null: As for `parquet`.
        shard: The part to read, as for `open`.

    Raises:
        FieldError: An option breaks its rule.
        FormatError: As for `parquet`.
        MissingExtra: When iterated: pyarrow is not installed.
    """
    options: dict[str, Any] = {"columnar": bool(columnar), "fill_null": fill_null}
    check_arrow(columns, **options)
    files = each_file("arrow.path", path, read_arrow)
    return FilesReader("arrow", files, {"columns": columns, **options}, shard=shard)


def ray_dataset(
    dataset: Any,
    columns: Sequence[str] | None = None,
    *,
    columnar: bool = False,
    fill_null: Fill | None = None,
    order: bool = False,
    prefetch_batches: int = 1,
    shard: ShardLike | None = None,
) -> Reader[Any]:
    """Read a Ray Data set through its Arrow blocks; needs the ``ray`` extra.

    ``ray_dataset(ray.data.read_parquet("train").map_batches(tokenize), ["ids"], columnar=True)``

    Every pass executes the data set. In a worker of Ray Train, ``ray_dataset("train", ...)`` reads
    the worker's split of the data set that the trainer knows as "train". Columns are what they are
    for `parquet`.

    Args:
        dataset: A ``ray.data.Dataset`` or ``DataIterator``; whatever has their ``iter_batches``. Or
            the name of the trainer's data set.
        columns: Names, in the order wanted; None takes all.
        columnar: Whether a sample is a `ColumnarBatch`, one a block.
        fill_null: As for `parquet`.
        order: Whether the data set gives its rows in the same order every time, as it does with
            ``preserve_order`` among the execution options of its context. Without, a pass can not
            be resumed.
        prefetch_batches: Blocks that Ray fetches ahead.
        shard: The part to read, as for `open`, by samples; every rank has Ray execute all of it.

    Raises:
        FieldError: An option breaks its rule, or ``dataset`` has no ``iter_batches``. When
            iterated: a column is not there, holds nulls, or something that no field is made of.
        MissingExtra: ``dataset`` is a name, and Ray is not installed.
    """
    check_table("ray_dataset", columns, fill_null=fill_null)
    if isinstance(dataset, str):
        dataset = import_extra("ray.train", "ray").get_dataset_shard(dataset)
    if not callable(getattr(dataset, "iter_batches", None)):
        raise FieldError(f"ray_dataset.dataset must have iter_batches, got {dataset!r:.80}")
    return _RayReader(
        dataset,
        columns,
        columnar=bool(columnar),
        fill_null=fill_null,
        order=bool(order),
        prefetch_batches=whole_number("ray_dataset.prefetch_batches", prefetch_batches, minimum=0),
        shard=shard,
    )


class _RayReader(ShardedReader[Any]):
    def __init__(
        self,
        dataset: Any,
        columns: Sequence[str] | None,
        *,
        columnar: bool,
        fill_null: Fill | None,
        order: bool,
        prefetch_batches: int,
        shard: ShardLike | None,
    ) -> None:
        division = as_shard("ray_dataset.shard", shard)
        if division is not None and division.num_shards > 1 and not order:
            raise FieldError(
                "ray_dataset.order must be True with shard, since ranks must agree on the order; "
                "or give each rank its split of dataset.streaming_split"
            )
        options: dict[str, Any] = {
            "columns": columns,
            "columnar": columnar,
            "fill_null": fill_null,
        }
        super().__init__("ray_dataset", division=division, **options, order=order)
        self._dataset = dataset
        self._columns = columns
        self._columnar = columnar
        self._fill_null = fill_null
        self._order = order
        self._prefetch_batches = prefetch_batches

    @property
    def is_columnar(self) -> bool:
        """Whether it was asked for blocks."""
        return self._columnar

    def unrepeatable(self) -> str | None:
        """Say that Ray hands out blocks as they get ready, unless told otherwise."""
        if self._order:
            return None
        return (
            "gets blocks in the order in which they are ready; let Ray preserve_order, "
            "and give order=True"
        )

    def open_whole(self, epoch: int, skip: int) -> Iterator[Any]:
        """Let Ray read what is skipped, but look at nothing of it except the number of rows."""
        first_row = 0
        with closing(self._record_batches()) as record_batches:
            if self._columnar:
                first_row = sum(map(len, islice(record_batches, skip)))
                skip = 0
            for record_batch in record_batches:
                num_rows = len(record_batch)
                if num_rows > skip:
                    batch = to_columnar(
                        record_batch,
                        self._columns,
                        owner="ray_dataset",
                        first_row=first_row,
                        fill_null=self._fill_null,
                    )
                    if self._columnar:
                        yield batch
                    else:
                        yield from batch[skip:].rows()
                skip = max(0, skip - num_rows)
                first_row += num_rows

    def _record_batches(self) -> Generator[Any, None, None]:
        tables = iter(
            self._dataset.iter_batches(
                batch_size=None, batch_format="pyarrow", prefetch_batches=self._prefetch_batches
            )
        )
        try:
            for table in tables:
                yield from filter(len, table.to_batches())
        finally:
            close_iterator(tables)
