from __future__ import annotations

import re
import sys

import pytest

from gpufeed import errors
from gpufeed.errors import GpufeedError, MissingExtra, import_extra

TREE = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, GpufeedError)
}


def test_the_drawn_tree_is_the_tree():
    drawn = dict(re.findall(r"(?:├|└)── (\w+)(?: \((\w+)\))?", errors.__doc__ or ""))
    assert set(drawn) == set(TREE) - {"GpufeedError"}
    for name, builtin in drawn.items():
        if builtin:
            assert builtin in {base.__name__ for base in TREE[name].__mro__}


def test_every_error_is_exported():
    assert set(errors.__all__) == {*TREE, "import_extra"}


def test_only_reader_errors_are_nested():
    nested = {name for name, kind in TREE.items() if errors.ReaderError in kind.__bases__}
    assert nested == {"WorkerDied", "ReaderTimeout"}


def test_a_missing_library_is_named_with_its_remedy():
    with pytest.raises(
        MissingExtra, match=r"^nothing is not installed: pip install 'gpufeed\[x\]'$"
    ):
        import_extra("nothing.at.all", "x")


def test_a_library_that_is_there_is_given():
    assert import_extra("xml.dom", "x").__name__ == "xml.dom"


def test_what_a_library_itself_lacks_is_its_own_error(tmp_path, monkeypatch):
    (tmp_path / "gpufeed_broken_extra.py").write_text("import gpufeed_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="gpufeed_not_there") as caught:
        import_extra("gpufeed_broken_extra", "x")
    assert not isinstance(caught.value, MissingExtra)
    sys.modules.pop("gpufeed_broken_extra", None)
