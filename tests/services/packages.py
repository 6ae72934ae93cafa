"""outboxd as it is given to others: source package and wheel, made of a copy of the tree; and installed by make."""

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NO_PART = (".git", ".venv", "__pycache__", "*.egg-info", "build", "dist", ".*_cache", ".hypothesis")


@dataclass(frozen=True, slots=True)
class Packages:
    """tree: what they were made of. output: what the tools said. unpacked: the source package's content."""

    tree: Path
    source: Path
    wheel: Path
    output: str
    unpacked: Path


@dataclass(frozen=True, slots=True)
class Installation:
    """root: the folder that stands for /. output: what `make install` said."""

    root: Path
    output: str


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    """Source package, and a wheel that was built from it."""
    folder = tmp_path_factory.mktemp("packages")
    tree = folder / "tree"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*NO_PART))
    output = build(tree, folder / "dist")
    (source,), (wheel,) = (folder / "dist").glob("*.tar.gz"), (folder / "dist").glob("*.whl")
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    return Packages(tree, source, wheel, output, folder / source.name.removesuffix(".tar.gz"))


@pytest.fixture(scope="session")
def installation(packages: Packages, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """`make install` from the source package, with all that it needs, as for /opt/outboxd. To be left as it is."""
    root = tmp_path_factory.mktemp("root")
    done = make(packages.unpacked, "install", f"DESTDIR={root}")
    assert done.returncode == 0, done.stdout + done.stderr
    yield Installation(root, done.stdout + done.stderr)
    shutil.rmtree(root)  # pytest would keep it for a while, with a whole environment in it


def build(tree: Path, into: Path, *arguments: str) -> str:
    """Run `python -m build`, with the setuptools that are here; what it said."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(into), *arguments, str(tree)]
    done = _run(command)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def make(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run make in a tree, with the umask of a careful root."""
    return _run(["make", "--no-print-directory", "-C", str(tree), f"PYTHON={sys.executable}", *arguments])


def files(folder: Path) -> set[str]:
    """All that is no folder, by its path in it."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()}


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    # Byte code is written as everywhere else; make's own variables would name the one that runs the tests.
    # To save time, the environment's own is not.
    unwanted = ("PYTHONDONTWRITEBYTECODE", "MAKEFLAGS", "MAKELEVEL", "PREFIX", "DESTDIR")
    environ = {name: text for name, text in os.environ.items() if name not in unwanted}
    environ["PIP_NO_COMPILE"] = "1"
    return subprocess.run(command, capture_output=True, text=True, env=environ, umask=0o077, check=False)
