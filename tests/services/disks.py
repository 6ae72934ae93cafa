"""Small file systems, to be filled."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.services.find import require


@contextmanager
def small_disk(folder: Path, kib: int) -> Iterator[Path]:
    """A file system of that size at a new folder; the test is skipped where none can be mounted."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "none", str(folder)]
    mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    require("mount", mounted or None, "a file system cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
