"""Build the wheel and compare its files with those that git tracks.

Packages are listed by hand in pyproject.toml, and one that is forgotten there works in an editable
install and is missing from the wheel.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def tracked() -> set[str]:
    """Return the wheel names of all tracked files that users need."""
    listed = subprocess.run(
        ["git", "ls-files", "gpufeed", "kernels"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    return {
        f"gpufeed/{name}" if name.startswith("kernels/") else name
        for name in listed
        if name.endswith((".py", "py.typed"))
    }


def built() -> set[str]:
    """Return the names in a freshly built wheel, without its metadata."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-m", "build", "--wheel", "--outdir", folder, str(ROOT)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        (wheel,) = Path(folder).glob("*.whl")
        names = zipfile.ZipFile(wheel).namelist()
    return {name for name in names if ".dist-info/" not in name}


def main() -> int:
    """Say what differs; 1 if anything does."""
    want, got = tracked(), built()
    for title, names in (("missing from the wheel", want - got), ("only in it", got - want)):
        for name in sorted(names):
            print(f"{title}: {name}")
    print(f"wheel: {len(got)} files, {len(want)} tracked")
    return want != got


if __name__ == "__main__":
    sys.exit(main())
