"""The command line: ``gpufeed`` or ``python -m gpufeed``."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

from gpufeed.errors import FieldError, FormatError, GpufeedError

__all__ = ["main", "positive"]

# The extras that something here asks for. One is there when the module it brings can be found.
_EXTRAS = {
    "arrow": "pyarrow",
    "awkward": "awkward",
    "cuda13": "cupy",
    "jax": "jax",
    "ray": "ray",
    "remote": "fsspec",
    "scipy": "scipy",
    "snappy": "cramjam",
    "torch": "torch",
    "zstd": "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status.

    That is 0; 1 where ``inspect`` finds damage, or nobody reads the output to its end; 2 after an
    error of gpufeed's own.

    Args:
        argv: Arguments without the program's name; None takes the process's own.
    """
    options = _parser().parse_args(argv)
    try:
        status = _run(options)
        sys.stdout.flush()  # or a pipe that is closed would be found at exit
        return status
    except GpufeedError as error:
        print(f"gpufeed: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever reads has seen enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        return 1


def _run(options: argparse.Namespace) -> int:
    if options.command == "demo":
        _demo(options)
    elif options.command == "convert":
        _convert(options)
    elif options.command == "inspect":
        return _inspect(options)
    else:
        _info()
        if options.warm:
            _warm()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpufeed", description="Feeds training data to GPUs.")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="train three small models from files")
    demo.add_argument(
        "--data", type=Path, metavar="DIR", help="folder with mnist/, rt-polarity/ and a9a/"
    )
    demo.add_argument("--devices", type=positive, default=1, metavar="N", help="share each batch")
    demo.add_argument("--passes", type=positive, default=3, metavar="P")
    demo.add_argument("--batch-size", type=positive, default=128, metavar="B")
    demo.add_argument("--seed", type=int, default=0, metavar="S")
    demo.add_argument("--model", choices=["images", "sentences", "census", "all"], default="all")
    info = commands.add_parser("info", help="show versions, devices and missing extras")
    info.add_argument("--warm", action="store_true", help="compile all kernels ahead of time")
    convert = commands.add_parser("convert", help="write samples of any format to a RecordIO file")
    convert.add_argument("source", metavar="SRC", help="a path or pattern, or tag:path")
    convert.add_argument("target", metavar="DST", help="the RecordIO file")
    convert.add_argument("--compressor", choices=["none", "snappy", "gzip"], default="snappy")
    convert.add_argument("--dialect", choices=["fluid", "go"], default="fluid")
    inspect = commands.add_parser("inspect", help="show what is in files, and what is damaged")
    inspect.add_argument(
        "sources", metavar="FILE", nargs="+", help="a path or pattern, or tag:path"
    )
    return parser


def positive(text: str) -> int:
    """Return the whole number >= 1 that an argument of a command line is."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number >= 1, got {text!r}")
    return int(text)


def _demo(options: argparse.Namespace) -> None:
    # Imported here, so that `gpufeed info` needs no more than it shows.
    from gpufeed.demo.report import run

    run(
        folder=options.data,
        num_devices=options.devices,
        num_passes=options.passes,
        batch_size=options.batch_size,
        seed=options.seed,
        model=options.model,
    )


def _convert(options: argparse.Namespace) -> None:
    from gpufeed.convert import SampleEncoder, write_records
    from gpufeed.creator.files import open as open_files

    _require_recordio(options.target)
    encode = SampleEncoder("convert")
    num_records = write_records(
        options.target,
        map(encode, open_files(options.source)),
        dialect=options.dialect,
        compressor=options.compressor,
    )
    kind = "pickles, to be read with allow_pickle=True" if encode.pickles else "bytes"
    print(f"{options.target}: {num_records:,} records, {kind}")


def _require_recordio(target: str) -> None:
    """Refuse to write records over a file, or into a name, that is of another format."""
    from gpufeed.formats import resolve

    with suppress(FormatError):  # no format's name
        form, _ = resolve(target)
        if form.tag != "recordio":
            raise FieldError(
                f"convert.DST must be a RecordIO file, got {target} (of the format {form.tag})"
            )


def _inspect(options: argparse.Namespace) -> int:
    from gpufeed.inspection import inspect_files

    num_faults = 0
    for report in chain.from_iterable(map(inspect_files, options.sources)):
        print(report)
        num_faults += report.num_faults
    return 1 if num_faults else 0


def _info() -> None:
    from gpufeed.device import describe_cuda_devices, num_cuda_devices, num_virtual_devices

    print(f"python {platform.python_version()} on {platform.platform()}")
    for package in ("gpufeed", "numpy", "numba", "numba-cuda", "cupy-cuda12x", "cupy-cuda13x"):
        with suppress(importlib.metadata.PackageNotFoundError):
            print(f"{package} {importlib.metadata.version(package)}")
    print(f"CUDA devices: {num_cuda_devices()}")
    for line in describe_cuda_devices():
        print(line)
    print(f"virtual devices: {num_virtual_devices()}")
    for extra, module in _EXTRAS.items():
        if not _is_installed(module):
            print(f"not installed: pip install 'gpufeed[{extra}]'")


def _warm() -> None:
    from gpufeed.device import cuda_places, num_cuda_devices
    from gpufeed.places import CPUPlace
    from gpufeed.warm import warm_all

    for place in [CPUPlace(), *(cuda_places() if num_cuda_devices() else [])]:
        print(f"kernels for {place}: compiled or loaded in {warm_all(place):.1f} s", flush=True)
    from gpufeed.kernels.cpu import cache_folder  # which imports numba

    folder = cache_folder()
    where = f"in {folder}" if folder else "nowhere: no folder can be written, set NUMBA_CACHE_DIR"
    print(f"kernels for cpu are kept {where}")


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that the module is in
        return False
