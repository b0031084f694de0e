"""What is in a file, in a few lines: its format, how much it holds, and what is damaged."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from reprlib import Repr
from typing import Any

from gpufeed.errors import FormatError, MissingFile
from gpufeed.formats import PathLike, Source, locate, resolve
from gpufeed.formats.recordio import RecordIOFile

__all__ = ["Report", "inspect_files"]

_MAX_FAULTS = 10  # that are told one by one

_brief = Repr()
_brief.maxstring = _brief.maxother = 60


@dataclass
class Report:
    """What was found in one file; as text, the lines that ``gpufeed inspect`` prints.

    Attributes:
        title: Path, format and size.
        facts: Name to value, both text.
        faults: What is damaged, one sentence each, the first of them only.
        num_faults: How many there are in all.
    """

    title: str
    facts: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    num_faults: int = 0

    def add_fault(self, error: Exception, num_samples: int = 1) -> None:
        """Note damage; what a format calls that goes on behind it."""
        self.num_faults += 1
        if len(self.faults) < _MAX_FAULTS:
            self.faults.append(str(error))

    def __str__(self) -> str:
        lines = [self.title, *(f"  {name}: {value}" for name, value in self.facts.items())]
        lines += [f"  damage: {fault}" for fault in self.faults or ["none"]]
        if self.num_faults > len(self.faults):
            lines.append(f"  damage: {self.num_faults - len(self.faults):,} more places")
        return "\n".join(lines)


def inspect_files(spec: PathLike) -> Iterator[Report]:
    """Read files of any registered format to their end, and report on each.

    Args:
        spec: ``"tag:path"`` or ``"path"``, as for `creator.open`; the path may be a pattern.

    Raises:
        MissingFile: There is no such file.
        FormatError: Unknown format.
    """
    form, pattern = resolve(os.fspath(spec))
    for source in locate(pattern):
        report = Report(_title(source, form.tag))
        try:
            if form.tag == "recordio":
                _inspect_recordio(source, report)
            else:
                _inspect_samples(form.opener(source), report)
        except MissingFile:
            raise
        except FormatError as error:
            report.add_fault(error)
        yield report


def _title(source: Source, tag: str) -> str:
    title = f"{source.path}: {tag}"
    if source.compression:
        title += f" in {source.compression}"
    if source.is_local and os.path.isfile(source.path):
        title += f", {os.path.getsize(source.path):,} bytes"
    return title


def _inspect_recordio(source: Source, report: Report) -> None:
    kinds: Counter[str] = Counter()
    lengths: Counter[int] = Counter()
    stored = 0
    for chunk, records in RecordIOFile(source, skipped=report.add_fault).chunks():
        kinds[f"{chunk.header.dialect}, {chunk.header.compressor}"] += 1
        lengths.update(map(len, records))
        stored += chunk.header.nbytes
        report.facts["chunks"] = "; ".join(f"{num:,} ({kind})" for kind, num in kinds.items())
        report.facts["records"] = f"{lengths.total():,}"
    if lengths:
        total = sum(length * num for length, num in lengths.items())
        report.facts["bytes a record"] = f"{min(lengths):,} to {max(lengths):,}"
        report.facts["bytes in all"] = f"{total:,}, stored in {stored:,}"


def _inspect_samples(samples: Iterable[Any], report: Report) -> None:
    report.facts["samples"] = "0"
    for num_samples, sample in enumerate(samples, 1):
        report.facts["samples"] = f"{num_samples:,}"
        if num_samples == 1:
            report.facts["first"] = " ".join(_brief.repr(sample).split())
