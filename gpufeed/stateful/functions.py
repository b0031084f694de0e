"""The functions of PaddlePaddle 1.x that make stateful readers, at once.

`gpufeed.layers` has them as operators, which a program records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpufeed.formats import PathLike
from gpufeed.places import PlaceLike
from gpufeed.stateful.base import ReaderHolder
from gpufeed.stateful.decorated import MultiPassReader
from gpufeed.stateful.files import Filenames, FileReader, MultipleReader
from gpufeed.stateful.generator import RandomDataGenerator
from gpufeed.stateful.py_reader import PyReader
from gpufeed.stateful.tensors import Instance

__all__ = ["open_files", "open_recordio_file", "py_reader", "random_data_generator"]


def open_files(
    filenames: Filenames,
    shapes: Sequence[Sequence[int]],
    lod_levels: Sequence[int] | None,
    dtypes: Sequence[Any],
    thread_num: int | None = None,
    buffer_size: int | None = None,
    pass_num: int = 1,
    is_test: bool = False,
    **options: Any,
) -> ReaderHolder[Instance]:
    r"""Read the instances of files, tuples of tensors, on several threads.

    >>> from tempfile import NamedTemporaryFile
    >>> with NamedTemporaryFile("w", suffix=".csv") as file:
    ...     print("x,label", "0.5,3", sep="\n", file=file, flush=True)
    ...     reader = open_files(file.name, [[1], [1]], [0, 0], ["float32", "int64"], pass_num=2)
    ...     [label.to_list() for x, label in reader()]
    [[[3]], [[3]]]

    Args:
        filenames: One or a list; each a path, a glob pattern, or one of these behind a format tag
            (``"recordio:data/part-*"``), as for `gpufeed.creator.open`.
        shapes: Of each field, as for `gpufeed.data`.
        lod_levels: Of each field; None is 0 for all.
        dtypes: Of each field.
        thread_num: Threads that read, one file at a time each; None is one a file, at most one a
            CPU.
        buffer_size: Samples that are read ahead; None is 64 a thread, or 3 of RecordIO files,
            whose records are batches as a rule.
        pass_num: Passes that are one pass of the reader.
        is_test: Keep the order of files and samples; False delivers what is read first.
        options: Of the format. Fields go by position, so a format of samples by name, as JSON Lines
            is, needs its ``columns``.

    Raises:
        FieldError: A number is not a whole number >= 1, the lists do not fit each other, or an
            option breaks a rule of the format. When read: a sample does not fit; a note names
            ``filenames``.
        FormatError: Unknown format. When read: a file is missing, or what the format raises.

    Source: ``fluid.layers.open_files`` of PaddlePaddle 1.x, which knew recordio files.
    """
    reader = MultipleReader(
        *(filenames, shapes, lod_levels, dtypes),
        thread_num=thread_num,
        buffer_size=buffer_size,
        is_test=is_test,
        **options,
    )
    return reader if pass_num == 1 else MultiPassReader(reader, pass_num)


def open_recordio_file(
    filename: PathLike,
    shapes: Sequence[Sequence[int]],
    lod_levels: Sequence[int] | None,
    dtypes: Sequence[Any],
    pass_num: int = 1,
    for_parallel: bool = True,
) -> ReaderHolder[Instance]:
    """Read the tensors of one RecordIO file, in order.

    >>> from tempfile import TemporaryDirectory
    >>> from gpufeed import LoDTensor, RecordIOWriter
    >>> with TemporaryDirectory() as folder:
    ...     path = f"{folder}/train.recordio"
    ...     with RecordIOWriter(path, compressor="none") as writer:
    ...         writer.append_tensor(LoDTensor([[7], [8]], [[0, 1, 2]]))
    ...         writer.complete_append_tensor()
    ...     reader = open_recordio_file(path, [[1]], [1], ["int64"])
    ...     reader.read_next()
    (LoDTensor(shape=(2, 1), dtype=int64, lod=[[0, 1, 2]], place=cpu),)

    Args:
        filename: Whatever its ending.
        shapes: As for `open_files`, and so the next two.
        lod_levels: Of each field.
        dtypes: Of each field.
        pass_num: Passes that are one pass of the reader.
        for_parallel: Every reader may be read by several threads, so this changes nothing.

    Raises:
        FieldError: The lists do not fit each other. When read: a record does not fit.
        FormatError: When read: the file is missing or damaged.
    """
    reader = FileReader(f"recordio:{filename}", shapes, lod_levels, dtypes)
    return reader if pass_num == 1 else MultiPassReader(reader, pass_num)


def random_data_generator(
    low: float,
    high: float,
    shapes: Sequence[Sequence[int]],
    lod_levels: Sequence[int] | None = None,
    for_parallel: bool = True,
    *,
    seed: int | None = None,
) -> RandomDataGenerator:
    """Draw instances of float32 tensors from ``[low, high)``, without end.

    >>> [tensor.shape for tensor in random_data_generator(0, 1, [[8, 4], [8, 1]]).read_next()]
    [(8, 4), (8, 1)]

    Args:
        low: Least value.
        high: Bound of the values.
        shapes: Of each field, all dimensions known.
        lod_levels: Of each field; a field with levels is one sequence. None is 0 for all.
        for_parallel: Every reader may be read by several threads, so this changes nothing.
        seed: Makes the values a function of (seed, epoch, ordinal).

    Raises:
        FieldError: ``low > high``, a dimension is not known, or the lists do not fit each other.
    """
    return RandomDataGenerator(low, high, shapes, lod_levels, seed=seed)


def py_reader(
    capacity: int,
    shapes: Sequence[Sequence[int]],
    dtypes: Sequence[Any],
    lod_levels: Sequence[int] | None = None,
    name: str | None = None,
    use_double_buffer: bool = True,
    *,
    place: PlaceLike | None = None,
    strict: bool = True,
) -> PyReader:
    """Return a stateful reader that a Python reader feeds; `PyReader` tells the rest.

    >>> reader = py_reader(4, [[-1, 1]], ["int64"])
    >>> reader.decorate_paddle_reader(lambda: [[1, 2], [3]])
    >>> reader.start()
    >>> reader.read_next()[0].to_list()
    [[1], [2]]
    >>> reader.reset()
    """
    return PyReader(
        *(capacity, shapes, dtypes, lod_levels, name, use_double_buffer),
        place=place,
        strict=strict,
    )
