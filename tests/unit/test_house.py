"""What holds for the whole tree: sizes, layout, imports."""

import ast
import configparser
import fnmatch
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import outboxd

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for folder in ("outboxd", "tests", "docs") for path in (ROOT / folder).rglob("*.py"))
MODULES = sorted(module.name for module in pkgutil.walk_packages(outboxd.__path__, "outboxd."))

FILE_LINES = 300
FUNCTION_LINES = 50
TOP_LEVEL = {
    ".ci", ".git", ".gitignore", "CHANGELOG.md", "LICENSE", "MANIFEST.in", "Makefile", "README.md", "docs", "etc",
    "outboxd", "pyproject.toml", "ruff.toml", "setup.cfg", "systemd", "tests",
}  # fmt: skip


def functions(path: Path) -> list[tuple[str, int]]:
    """Name and number of lines of every function in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        (f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", (node.end_lineno or node.lineno) - node.lineno + 1)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def test_every_file_can_be_read_in_one_go() -> None:
    """A file that grows past 300 lines holds two subjects."""
    texts = [*SOURCES, *(ROOT / "outboxd").rglob("*.sql"), *(ROOT / "docs").rglob("*.sql"), ROOT / "Makefile"]
    texts += [path for folder in ("systemd", "tests") for path in (ROOT / folder).rglob("*.sh")]
    lengths = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in texts}
    assert {name: lines for name, lines in lengths.items() if lines > FILE_LINES} == {}


def test_every_function_fits_on_a_screen() -> None:
    """A function past 50 lines does several things; its parts have names."""
    found = [function for path in SOURCES for function in functions(path)]
    assert len(found) > 20, "the search for functions found hardly any"
    assert [(name, lines) for name, lines in found if lines > FUNCTION_LINES] == []


def test_nothing_is_left_to_be_done_later() -> None:
    """Unfinished work belongs to the issues, where someone sees it."""
    marks = re.compile(r"\b(TO" + r"DO|FIX" + r"ME)\b|raise NotImpl" + "ementedError")
    marked = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in SOURCES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if marks.search(line)
    ]
    assert marked == []


def test_the_top_level_holds_what_the_layout_names() -> None:
    """A person who opens the repository sees the few things that matter; what tools leave there is ignored by git."""
    ignored = [line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line]
    found = {path.name for path in ROOT.iterdir() if not any(fnmatch.fnmatch(path.name, name) for name in ignored)}
    assert found - TOP_LEVEL == set()


def test_every_folder_of_modules_is_a_package() -> None:
    """A folder without `__init__.py` works in the checkout and is missing from what is installed."""
    folders = {path.parent for path in (ROOT / "outboxd").rglob("*.py")}
    assert [str(folder.relative_to(ROOT)) for folder in folders if not (folder / "__init__.py").exists()] == []


PARTS = ("api", "courier", "rocketmq_sending")
"""What several publishers are made of."""


def test_every_publisher_is_in_the_contract_that_keeps_them_apart() -> None:
    """A publisher that imports another one cannot be configured, tested or removed without it."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    listed = settings["importlinter:contract:publishers"]["modules"].split()
    publishers = {
        f"outboxd.publishers.{path.stem}"
        for path in (ROOT / "outboxd" / "publishers").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and path.stem not in PARTS
        if {"submit", "collect", "wait_on"} <= {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
    }
    assert "outboxd.publishers.http" in publishers, "the search for publishers found none"
    assert publishers - set(listed) == set()


@pytest.mark.parametrize("name", MODULES)
def test_every_module_can_be_imported(name: str) -> None:
    """Each by itself; with warnings as errors, so that none uses what Python is about to drop."""
    importlib.import_module(name)


def test_a_supervisor_starts_without_client_libraries() -> None:
    """Clients start threads and hold sockets, which a fork must not copy: they are imported in the child."""
    program = (
        "import sys, outboxd, outboxd.cli.main, outboxd.cli.run\n"
        "clients = {'MySQLdb', 'pycurl', 'requests', 'rich', 'redis', 'flask', 'waitress', 'prometheus_client'}\n"
        "print(*sorted(clients & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (run.returncode, run.stdout.split()) == (0, []), run.stderr
