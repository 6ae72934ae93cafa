"""A supervisor for each test that asks for one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lifecycle.supervised import Start, Supervised


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a supervisor with the arguments of roles.py and variables of the environment; it is gone after the test."""
    started: list[Supervised] = []

    def start_one(*arguments: str, **environ: str) -> Supervised:
        started.append(Supervised(tmp_path / f"log-{len(started)}", *arguments, **environ))
        return started[-1]

    yield start_one
    for supervised in started:
        supervised.stop()
