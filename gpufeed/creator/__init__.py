"""Reader creators: functions that make a reader of an array or of files.

Making a reader opens nothing; iterating it does. So a missing file is found then, and every pass
reads afresh.

A path is one of this machine, or with the ``remote`` extra a URL that fsspec knows: ``https://``,
``s3://`` and many more, in patterns too where the place behind it can list its files.
"""

from __future__ import annotations

from gpufeed.creator.arrays import idx, np_array, npy
from gpufeed.creator.columnar import arrow, parquet, ray_dataset
from gpufeed.creator.files import open  # noqa: A004 - the public name
from gpufeed.creator.records import recordio
from gpufeed.creator.tar import webdataset
from gpufeed.creator.text import csv, jsonl, svmlight, text_file

__all__ = [
    "arrow",
    "csv",
    "idx",
    "jsonl",
    "np_array",
    "npy",
    "open",
    "parquet",
    "ray_dataset",
    "recordio",
    "svmlight",
    "text_file",
    "webdataset",
]
