"""Where the publishers of the fault tests write down what they have published."""

from pathlib import Path

import pytest


@pytest.fixture
def sink(tmp_path: Path) -> Path:
    """A directory for the publishers of `tests.services.sinks`."""
    directory = tmp_path / "published"
    directory.mkdir()
    return directory
