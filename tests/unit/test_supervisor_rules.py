"""What holds for the supervisor's code as a whole."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "outboxd" / "supervisor").glob("*.py"))


def uses(module: str, path: Path) -> set[str]:
    """The names of a module that a file uses, as `module.name` or imported one by one."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == module:
            found.add(node.attr)
        if isinstance(node, ast.ImportFrom) and node.module == module:
            found.update(alias.name for alias in node.names)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_supervisor_knows_one_clock(path: Path) -> None:
    """G12: a clock that is set, forwards or back, changes no wait. And nothing but its selector waits."""
    assert uses("time", path) <= {"monotonic", "monotonic_ns"}
    assert uses("datetime", path) == set()


def test_the_supervisor_has_no_threads() -> None:
    """A lock that a thread holds at a fork stays locked in the child for ever."""
    assert len(FILES) > 5
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        assert "import threading" not in text, path.name
        assert "concurrent.futures" not in text, path.name
        assert "multiprocessing" not in text, path.name
