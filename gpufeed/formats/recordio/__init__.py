"""RecordIO: PaddlePaddle's files of records, in both of its dialects.

`layout` says what is in a file and `codecs` how its chunks are compressed; `chunks` walks over
them, `file` makes samples of their records, `writer` writes them.
"""

from __future__ import annotations

from gpufeed.formats.recordio.file import RecordIOFile, check_recordio
from gpufeed.formats.recordio.writer import RecordIOWriter

__all__ = ["RecordIOFile", "RecordIOWriter", "check_recordio"]
