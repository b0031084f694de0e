"""Stateful readers: "is there more?", "what comes next?", "begin again".

`ReaderBase` is the interface, `ReaderHolder` makes one of any reader; the others are a reader
decorator or a creator each, held open. All of them are readers themselves, so whatever takes a
reader takes them.

Outcomes that hold for all: at the end of the data `ReaderHolder.has_next` is False and
`ReaderHolder.read_next` raises `EOFException`, until ``reinit``; an error comes where its item
would have come, once, and ends the pass; ``reinit`` in the middle drops what was read ahead and
begins the next pass; several threads may read, and each item goes to one of them.
"""

from __future__ import annotations

from gpufeed.errors import EOFException
from gpufeed.stateful.base import ReaderBase, ReaderHolder
from gpufeed.stateful.decorated import (
    BatchReader,
    DecoratedReader,
    DoubleBufferReader,
    MultiPassReader,
    ShuffleReader,
)
from gpufeed.stateful.files import FileReader, MultipleReader
from gpufeed.stateful.functions import (
    open_files,
    open_recordio_file,
    py_reader,
    random_data_generator,
)
from gpufeed.stateful.generator import RandomDataGenerator
from gpufeed.stateful.py_reader import PyReader
from gpufeed.stateful.tensors import Instance

__all__ = [
    "BatchReader",
    "DecoratedReader",
    "DoubleBufferReader",
    "EOFException",
    "FileReader",
    "Instance",
    "MultiPassReader",
    "MultipleReader",
    "PyReader",
    "RandomDataGenerator",
    "ReaderBase",
    "ReaderHolder",
    "ShuffleReader",
    "open_files",
    "open_recordio_file",
    "py_reader",
    "random_data_generator",
]
