"""What applications import: nothing comes along, and what the docstrings show is true."""

import doctest
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import outboxd.producer
import outboxd.testing
from outboxd.testing import make_tables
from tests.services.daemon import ROOT

PACKAGES = (outboxd.producer, outboxd.testing)
NAMES = [package.__name__ for package in PACKAGES] + [
    module.name for package in PACKAGES for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]
WITH_EXAMPLES = {
    "outboxd.producer.doorbell", "outboxd.producer.event", "outboxd.producer.held", "outboxd.producer.ids",
    "outboxd.producer.recording", "outboxd.testing.faults", "outboxd.testing.recorder", "outboxd.testing.relaying",
}  # fmt: skip
LOADED = """
import sys
before = set(sys.modules)
import outboxd.producer
third = {name.partition(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)
print(*sorted(third), *sorted(name for name in sys.modules if name.startswith("outboxd.")))
"""
WITHOUT_DEPENDENCIES = """
import sqlite3, sys
from importlib.abc import MetaPathFinder
class Only(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        top = name.partition(".")[0]
        if top != "outboxd" and top not in sys.stdlib_module_names:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Only())
from outboxd.producer import Event, publish_now, record, record_held
connection = sqlite3.connect("{path}")
record(connection, Event(event_type="T", room_id="r", envelope={{}}, headers={{}}))
held = record_held(connection, Event(event_type="T", room_id="r", envelope={{}}))
connection.commit()
print(publish_now(lambda: sqlite3.connect("{path}"), held, lambda event: None))
"""


def python(program: str) -> str:
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_the_producer_brings_nothing_along() -> None:
    """Neither a driver nor the relay, no YAML, no web framework: only what is the application's already."""
    found = python(LOADED).split()
    assert {name for name in found if not name.startswith("outboxd")} == set()
    ours = {name for name in found if name.startswith("outboxd.")}
    assert {name for name in ours if not name.startswith("outboxd.producer")} == {
        "outboxd.errors", "outboxd.redact", "outboxd.table",
    }  # fmt: skip


def test_the_producer_works_where_no_dependency_is_installed(sqlite_url: str) -> None:
    """As after `pip install --no-deps outboxd`."""
    make_tables(sqlite_url)
    said = python(WITHOUT_DEPENDENCIES.format(path=sqlite_url.removeprefix("sqlite:///")))
    assert said == "Tried(published=True, marked=True, error='')\n"


def test_importing_the_producer_costs_little() -> None:
    """Less than the modules of the standard library that it uses: a pair, as the machine may be busy."""
    program = (
        "import time\n"
        "start = time.process_time()\n"
        "import base64, contextvars, dataclasses, datetime, json, logging, queue, threading, typing, urllib.parse\n"
        "middle = time.process_time()\n"
        "import outboxd.producer\n"
        "print((time.process_time() - middle) / (middle - start))"
    )
    assert min(float(python(program)) for _ in range(3)) < 1.0


@pytest.mark.parametrize("name", NAMES)
def test_what_the_docstrings_show_is_true(name: str, tmp_path: Path) -> None:
    """`path` in them is a file that is not there yet. What must have examples has them."""
    result = doctest.testmod(importlib.import_module(name), extraglobs={"path": str(tmp_path / "outbox.db")})
    assert result.failed == 0
    assert result.attempted or name not in WITH_EXAMPLES
