"""What `make install` and `make uninstall` do to a machine; a folder stands for it (DESTDIR)."""

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.find import program, require
from tests.services.packages import ROOT, Installation, Packages, files, make

PREFIX, UNITS, SETTINGS, COMMAND = "opt/outboxd", "etc/systemd/system", "etc/outboxd", "usr/local/bin/outboxd"
UNIT, DROP_INS = f"{UNITS}/outboxd.service", f"{UNITS}/outboxd.service.d"
NOBODY = "65534"


def outboxd(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run what is installed in a root; its own scripts name the place that it will have later."""
    python = str(root / PREFIX / "bin/python")
    run = [python, "-P", "-m", "outboxd", *arguments]
    return subprocess.run(run, capture_output=True, text=True, cwd=root, check=False)


@pytest.fixture
def machine(installation: Installation, tmp_path: Path) -> Iterator[Path]:
    """A machine of the test's own, on which outboxd is installed."""
    yield Path(shutil.copytree(installation.root, tmp_path / "machine", symlinks=True))
    shutil.rmtree(tmp_path / "machine")


@pytest.fixture
def open_tree(packages: Packages) -> Iterator[Path]:
    """As much of the tree as make needs to refuse, where every user may read it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        tree = Path(name)
        tree.chmod(0o755)
        shutil.copy(packages.unpacked / "Makefile", tree)
        shutil.copytree(packages.unpacked / "systemd", tree / "systemd")
        yield tree


def test_what_is_installed_works(installation: Installation, tmp_path: Path) -> None:
    """With what it needs, in an environment of its own."""
    assert outboxd(installation.root, "--version").stdout.startswith("outboxd, version ")
    demo = outboxd(installation.root, "demo", "--events", "50")
    assert demo.returncode == 0, demo.stdout + demo.stderr
    settings = tmp_path / "outbox.yaml"
    settings.write_text(
        f'database: {{url: "sqlite:///{tmp_path}/outboxd.db"}}\noutbox_worker: {{direct: [console]}}\n'
        "lanes: {room_outbox: {}}\npublishers: {console: {type: console}}\n"
    )
    assert outboxd(installation.root, "--config", str(settings), "init-db").returncode == 0
    check = outboxd(installation.root, "--config", str(settings), "check")
    assert check.returncode == 0, check.stdout + check.stderr


def test_an_installation_is_in_its_places_and_tells_what_to_do_next(installation: Installation) -> None:
    """It starts nothing. Scripts name the place that they will have, not the folder that stood for /."""
    root = installation.root
    outside = {name for name in files(root) if not name.startswith(PREFIX)}
    examples = {path.name for path in (ROOT / "systemd/outboxd.service.d").iterdir()}
    drop_ins = {f"{UNITS}/outboxd.service.d/{name}" for name in examples}
    own = {f"{UNITS}/outboxd.service", f"{SETTINGS}/outbox.yaml", f"{SETTINGS}/outbox.yaml.example", COMMAND}
    assert outside == own | drop_ins
    assert os.readlink(root / COMMAND) == "/opt/outboxd/bin/outboxd"
    assert (root / PREFIX / "bin/outboxd").read_text().startswith("#!/opt/outboxd/bin/python\n")
    scripts = [path for path in (root / PREFIX / "bin").iterdir() if not path.is_symlink()]
    assert [path.name for path in scripts if str(root).encode() in path.read_bytes()] == []
    assert "systemctl daemon-reload && systemctl enable --now outboxd" in installation.output


def test_whoever_runs_the_service_may_read_what_is_installed(installation: Installation) -> None:
    """The service's user is not root, and root's umask may be a strict one."""
    for name in (f"{SETTINGS}/outbox.yaml", UNIT, PREFIX, f"{PREFIX}/bin/outboxd", f"{PREFIX}/lib", SETTINGS):
        mode = stat.S_IMODE((installation.root / name).stat().st_mode)
        assert mode & 0o044 == 0o044, f"{name} has mode {mode:o}"


def test_an_upgrade_replaces_the_program_and_leaves_what_is_the_operators(
    packages: Packages, machine: Path, tmp_path: Path
) -> None:
    """The configuration, drop-ins and packages that were added stay; a unit that was changed is kept beside the new
    one. The version may be the same, as it is between two commits.
    """
    tree = Path(shutil.copytree(packages.unpacked, tmp_path / "tree"))
    with (tree / "outboxd/__init__.py").open("a") as module:
        module.write("\nIS_NEWER = True\n")
    (tree / "etc/outbox.systemd.yaml").write_text("# the new example\n")
    (machine / SETTINGS / "outbox.yaml").write_text("# the operator's\n")
    (machine / UNIT).write_text("# changed by hand\n")
    (machine / DROP_INS / "override.conf").write_text("[Service]\nLimitNOFILE=1000\n")
    (added := next((machine / PREFIX / "lib").glob("python*/site-packages")) / "added.py").write_text("")
    done = make(tree, "install", f"DESTDIR={machine}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "IS_NEWER" in (added.parent / "outboxd/__init__.py").read_text()
    assert outboxd(machine, "--version").returncode == 0
    assert (machine / SETTINGS / "outbox.yaml").read_text() == "# the operator's\n"
    assert (machine / SETTINGS / "outbox.yaml.example").read_text() == "# the new example\n"
    assert (machine / UNIT).read_text() == (ROOT / "systemd/outboxd.service").read_text()
    assert (machine / UNITS / "outboxd.service.old").read_text() == "# changed by hand\n"
    assert (machine / DROP_INS / "override.conf").exists()
    assert added.exists()
    assert "systemctl daemon-reload && systemctl restart outboxd" in done.stdout


def test_uninstalling_removes_what_was_installed_and_nothing_else(packages: Packages, machine: Path) -> None:
    """Configuration, drop-ins and data stay, and it says so. A second time there is nothing to remove."""
    kept = {f"{SETTINGS}/outbox.yaml", f"{SETTINGS}/database_password", f"{DROP_INS}/override.conf", "var/lib/data"}
    (machine / "var/lib").mkdir(parents=True)
    for name in kept - {f"{SETTINGS}/outbox.yaml"}:
        (machine / name).write_text("the operator's")
    done = make(packages.unpacked, "uninstall", f"DESTDIR={machine}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert files(machine) == kept
    assert not (machine / PREFIX).exists()
    for place in (f"{machine}/{SETTINGS}", f"{machine}/{DROP_INS}", "/var/lib/private/outboxd"):
        assert place in done.stdout
    again = make(packages.unpacked, "uninstall", f"DESTDIR={machine}")
    assert again.returncode != 0
    assert "nothing that make install has made" in again.stderr
    assert files(machine) == kept


def test_a_command_of_the_same_name_that_is_not_ours_is_left_alone(packages: Packages, machine: Path) -> None:
    """It may be what runs in production."""
    (machine / COMMAND).unlink()
    (machine / COMMAND).write_text("another one")
    assert make(packages.unpacked, "uninstall", f"DESTDIR={machine}").returncode == 0
    assert (machine / COMMAND).read_text() == "another one"


@pytest.mark.parametrize("target", ["install", "uninstall"])
def test_a_folder_that_was_not_made_by_it_is_not_touched(packages: Packages, tmp_path: Path, target: str) -> None:
    """PREFIX=/usr must not end with an empty /usr."""
    (tmp_path / "usr").mkdir()
    (tmp_path / "usr/precious").write_text("")
    done = make(packages.unpacked, target, f"DESTDIR={tmp_path}", "PREFIX=/usr")
    assert done.returncode != 0
    assert "PREFIX=" in done.stderr
    assert files(tmp_path) == {"usr/precious"}


@pytest.mark.parametrize("place", ["PREFIX=opt/outboxd", "PREFIX=/opt/out boxd", "PREFIX=/opt/a|b", "DESTDIR=root"])
def test_a_place_that_could_not_stand_in_a_unit_file_is_refused(packages: Packages, tmp_path: Path, place: str) -> None:
    """Before anything is made."""
    done = make(packages.unpacked, "install", f"DESTDIR={tmp_path}", place)
    assert done.returncode != 0
    assert "absolute" in done.stderr
    assert files(tmp_path) == set()


@pytest.mark.parametrize("target", ["install", "uninstall"])
def test_who_is_not_root_is_told_so(open_tree: Path, target: str) -> None:
    """One line with the place and what to do, instead of the first error of some tool."""
    command = ["make", "--no-print-directory", "-C", str(open_tree), target]
    if os.geteuid() == 0:
        setpriv = require("setpriv", program("setpriv"), "setpriv is not installed (package util-linux)")
        command = [setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "may not write to /" in done.stderr
    assert "sudo make" in done.stderr
