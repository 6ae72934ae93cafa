"""The packages that are given to others: a wheel, and a source package that gives the same one."""

import re
import shutil
import zipfile
from pathlib import Path

from tests.services.packages import Packages, build, files

NOT_IN_SOURCE = {".ci/run"}


def content(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_packages_are_built_without_a_warning(packages: Packages) -> None:
    """A warning of today is what breaks the build with the next setuptools."""
    assert [line for line in packages.output.splitlines() if re.search(r"(?i)warning|deprecat|!!", line)] == []


def test_the_wheel_holds_the_program_and_no_tests(packages: Packages) -> None:
    """With the statements, and the mark that its types may be relied on."""
    names = set(content(packages.wheel))
    inside = {name for name in names if not re.match(r"outboxd-[^/]+\.dist-info/", name)}
    assert inside == {f"outboxd/{name}" for name in files(packages.tree / "outboxd")}
    assert {"outboxd/py.typed", "outboxd/store/statements/mysql.sql", "outboxd/store/migrations/mysql.sql"} <= inside
    assert [name for name in names if name.endswith("/LICENSE")] != []


def test_the_source_package_holds_everything_and_gives_the_same_wheel(packages: Packages, tmp_path: Path) -> None:
    """Who builds from it, or reads it, lacks nothing: licence, documents, examples, unit file, tests."""
    assert files(packages.tree) - files(packages.unpacked) == NOT_IN_SOURCE
    tree = Path(shutil.copytree(packages.tree, tmp_path / "tree"))
    build(tree, tmp_path, "--wheel")
    (wheel,) = tmp_path.glob("*.whl")
    assert content(wheel) == content(packages.wheel)
