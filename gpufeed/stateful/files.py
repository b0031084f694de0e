"""Stateful readers of files: one file, and many files at once on threads.

    files ──> queue ──┬─> prefetching reader ──┐
                      ├─> prefetching reader ──┼──> channel, `buffer_size` deep ──> consumer
                      └─> prefetching reader ──┘

A prefetching reader takes the next file from the queue when it is done with one. So the order among
files is that of arrival; ``is_test=True`` is one prefetching reader, which keeps the order of the
list.

Failure: an error travels through the channel like a sample, behind those before it in its file,
and ends the pass for all threads: no file that never ends can hold it back.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from gpufeed.checks import whole_number
from gpufeed.creator.files import open as open_any
from gpufeed.device.channel import Channel, EndOfChannel
from gpufeed.device.threads import ThreadGroup
from gpufeed.errors import FieldError
from gpufeed.formats import PathLike, locate, resolve
from gpufeed.reader import buffered, chain
from gpufeed.reader.base import Reader
from gpufeed.reader.opening import drain, reading
from gpufeed.stateful.base import ReaderHolder
from gpufeed.stateful.tensors import Instance, TensorFields

__all__ = ["FileReader", "MultipleReader"]

Filenames = PathLike | Sequence[PathLike]


class FileReader(ReaderHolder[Instance]):
    r"""The instances of one file of any registered format, each compared with what is declared.

    >>> from tempfile import NamedTemporaryFile
    >>> with NamedTemporaryFile("w", suffix=".csv") as file:
    ...     print("x,y,label", "0.5,1,3", sep="\n", file=file, flush=True)
    ...     reader = FileReader(file.name, [[-1]] * 3, None, ["float32", "float32", "int64"])
    ...     [tensor.to_list() for tensor in reader.read_next()]
    [[0.5], [1.0], [3]]

    Args:
        filename: ``"tag:path"`` or a path whose ending tells the format, as for
            `gpufeed.creator.open`.
        shapes: Of each field, the batch dimension first.
        lod_levels: Of each field; None is 0 for all.
        dtypes: Of each field. Columns of text, as CSV has them, are converted to these.
        options: Of the format.

    Raises:
        FieldError: The lists do not fit each other, or an option breaks a rule of the format.
            When read: a sample does not fit; names field, expected and got, and in a note the file.
        FormatError: Unknown format. When read: what that format raises.

    Source: ``FileReader`` of PaddlePaddle's design of C++ data feeding.
    """

    def __init__(
        self,
        filename: PathLike,
        shapes: Sequence[Sequence[int]],
        lod_levels: Sequence[int] | None,
        dtypes: Sequence[Any],
        **options: Any,
    ) -> None:
        spec = os.fspath(filename)
        fields = TensorFields("FileReader", shapes, lod_levels, dtypes, [spec])
        super().__init__(_open_file(spec, dtypes, options), fields)


class MultipleReader(ReaderHolder[Instance]):
    """The instances of many files, read by several threads into one channel.

    Args:
        filenames: One or a list; each may be ``"tag:path"`` or a glob pattern.
        shapes: As for `FileReader`, and so the next two.
        lod_levels: Of each field.
        dtypes: Of each field.
        thread_num: Prefetching readers; None is one a file, at most one a CPU.
        buffer_size: Samples that are read ahead; None is 64 a thread, or 3 of RecordIO files,
            whose records are batches as a rule.
        is_test: Keep the order of files and samples.
        options: Of the format.

    Raises:
        FieldError: A number is not a whole number >= 1; and as `FileReader`.
        FormatError: Unknown format. When read: a file is missing, or what the format raises.

    Source: ``MultipleReader`` of PaddlePaddle's design of C++ data feeding, and ``open_files``.
    """

    def __init__(
        self,
        filenames: Filenames,
        shapes: Sequence[Sequence[int]],
        lod_levels: Sequence[int] | None,
        dtypes: Sequence[Any],
        *,
        thread_num: int | None = None,
        buffer_size: int | None = None,
        is_test: bool = False,
        **options: Any,
    ) -> None:
        specs = _listed(filenames)
        fields = TensorFields("open_files", shapes, lod_levels, dtypes, specs)
        if thread_num is not None:
            thread_num = whole_number("open_files.thread_num", thread_num, minimum=1)
        if buffer_size is not None:
            buffer_size = whole_number("open_files.buffer_size", buffer_size, minimum=1)
        readers = [_open_file(spec, dtypes, options) for spec in specs]
        samples: Reader[Any]
        if is_test:
            # Of one reader no chain, which would cost a step more for each sample.
            in_order = chain(*readers) if len(readers) > 1 else readers[0]
            samples = buffered(in_order, buffer_size or _samples_ahead(specs))
        else:
            samples = _ArrivalOrder(specs, dtypes, options, thread_num, buffer_size)
        super().__init__(samples, fields)


class _ArrivalOrder(Reader[Any]):
    """The samples of files that several threads read side by side."""

    def __init__(
        self,
        specs: Sequence[str],
        dtypes: Sequence[Any],
        options: Mapping[str, Any],
        thread_num: int | None,
        buffer_size: int | None,
    ) -> None:
        super().__init__("open_files", paths=specs)
        self._specs, self._dtypes, self._options = specs, dtypes, options
        self._thread_num, self._buffer_size = thread_num, buffer_size

    def open(self, epoch: int, skip: int) -> Iterator[Any]:
        readers = [_open_file(spec, self._dtypes, self._options) for spec in _each(self._specs)]
        num_threads = min(self._thread_num or os.cpu_count() or 1, len(readers))
        files: Channel[Reader[Any]] = Channel()
        for reader in readers:
            files.put(reader)
        files.finish()
        capacity = self._buffer_size or _samples_ahead(self._specs) * num_threads
        samples: Channel[Any] = Channel(capacity, num_producers=num_threads, name="open_files")
        with ThreadGroup("open_files", files, samples) as group:
            for number in range(num_threads):
                source = partial(_prefetch, files, epoch)
                group.start(f"open-files-{number}", source, samples)
            arrived = _until_failure(samples.drain())
            drain(arrived, skip)
            yield from arrived
            group.require_open()

    def unrepeatable(self) -> str | None:
        return "delivers files as they are read; pass is_test=True"


class _Failure:
    """An error, in the place of the sample that could not be read."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def _prefetch(files: Channel[Reader[Any]], epoch: int) -> Iterator[Any]:
    """Yield the samples of one file after the other from the queue; runs on a thread."""
    try:
        while True:
            try:
                file = files.get()
            except EndOfChannel:
                return
            with reading(file, epoch, 0) as samples:
                yield from samples
    except Exception as error:  # noqa: BLE001 - handed to the consumer's thread
        failure = [_Failure(error)]
        del error
        yield failure.pop()


def _until_failure(arrived: Iterator[Any]) -> Iterator[Any]:
    for sample in arrived:
        if type(sample) is _Failure:
            try:
                raise sample.error
            finally:
                del sample  # the error's traceback holds this frame
        yield sample
        del sample  # while the next one is awaited, this one is the consumer's alone


def _open_file(spec: str, dtypes: Sequence[Any], options: Mapping[str, Any]) -> Reader[Any]:
    form, _ = resolve(spec)
    return open_any(spec, **{**_implied(form.tag, dtypes, options), **options})


def _implied(tag: str, dtypes: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that follow from reading tensors of declared dtypes."""
    if tag == "recordio":
        return {"tensors": True}
    if tag == "csv":
        columns = options.get("columns") or range(len(dtypes))
        return {"dtypes": dict(zip(columns, dtypes, strict=False))}
    return {}


def _samples_ahead(specs: Sequence[str]) -> int:
    """Return how many samples a thread reads ahead, unless the user says otherwise.

    Two threads that hand over single samples change places so often that it takes them five times
    as long as reading; batches are few, and large enough to wait for.
    """
    return 3 if any(resolve(spec)[0].tag == "recordio" for spec in specs) else 64


def _each(specs: Sequence[str]) -> list[str]:
    """Return one spec a file: patterns are looked up."""
    found = []
    for spec in specs:
        form, path = resolve(spec)
        found += [f"{form.tag}:{source.path}" for source in locate(path)]
    return found


def _listed(filenames: Filenames) -> list[str]:
    listed: list[Any] = [filenames]
    if isinstance(filenames, Iterable) and not isinstance(filenames, str | bytes):
        listed = list(filenames)
    for name in listed:
        if not isinstance(name, str | os.PathLike):
            raise FieldError(f"open_files.filenames must be a name or a list of them, got {name!r}")
    if not listed:
        raise FieldError("open_files.filenames must name at least one file, got none")
    return [os.fspath(name) for name in listed]
