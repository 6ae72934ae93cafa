"""The folder in which workers keep their metrics as long as the daemon lives."""

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from outboxd import log
from outboxd.config.schema import Config

_OURS = re.compile(r"(counter|histogram|gauge_max)_[0-9]+\.db")
_PRIVATE = re.compile(r"metrics-([0-9]+)")


@contextlib.contextmanager
def metrics_folder(config: Config) -> Iterator[str | None]:
    """An empty folder, removed at the end if it is a private one. None, and a warning, if there can be none: events
    are relayed without metrics rather than not at all.
    """
    try:
        folder = _given(Path(config.metrics_dir)) if config.metrics_dir else _private(Path(config.admin.socket).parent)
    except OSError as error:
        log.warning(log.METRICS_UNAVAILABLE, error=f"{error.filename or config.metrics_dir}: {error.strerror}")
        yield None
        return
    try:
        yield str(folder)
    finally:
        if config.metrics_dir is None:
            shutil.rmtree(folder, ignore_errors=True)


def _given(folder: Path) -> Path:
    """A folder of the user's: only what looks like ours is removed from it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in folder.iterdir():
        if _OURS.fullmatch(path.name):
            path.unlink()
    return folder


def _private(parent: Path) -> Path:
    """One that bears our process id; those of daemons that were killed go."""
    for path in parent.iterdir():
        if (found := _PRIVATE.fullmatch(path.name)) and not os.path.exists(f"/proc/{found[1]}"):
            shutil.rmtree(path, ignore_errors=True)
    folder = parent / f"metrics-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    return folder
