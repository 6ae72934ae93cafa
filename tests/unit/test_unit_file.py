"""systemd/outboxd.service and its drop-ins: what systemd itself says of them, and what our own times ask for."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from outboxd.config.schema import Jobs, Lane, Supervisor
from tests.services.find import program, require
from tests.services.unit_file import DROP_INS, PROGRAM, UNIT, seconds, value

MOST_EXPOSURE = 2.0
EXAMPLES = sorted(DROP_INS.iterdir())


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze, which needs no systemd that runs."""
    found = require("systemd-analyze", program("systemd-analyze"), "systemd-analyze is not installed (package systemd)")
    return subprocess.run([found, *arguments], capture_output=True, text=True, check=False)


def copy_of_unit(folder: Path) -> Path:
    """With a program that is there."""
    copy = folder / UNIT.name
    copy.write_text(UNIT.read_text(encoding="utf-8").replace(f"ExecStart={PROGRAM}", "ExecStart=/bin/true"), "utf-8")
    return copy


def verified(unit: Path) -> tuple[int, str]:
    """Exit status and output; only of this unit, not of those that it names."""
    done = analyze("verify", "--man=no", "--recursive-errors=no", str(unit))
    return done.returncode, done.stdout + done.stderr


def test_systemd_understands_every_line(tmp_path: Path) -> None:
    """A key that is misspelt is ignored by systemd, with a line in its log that nobody reads."""
    unit = copy_of_unit(tmp_path)
    assert verified(unit) == (0, "")
    unit.write_text(unit.read_text(encoding="utf-8") + "WantdBy=multi-user.target\n", encoding="utf-8")
    assert "WantdBy" in verified(unit)[1], "it would tell"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: str(example.stem))
def test_systemd_understands_every_example_of_a_drop_in(example: Path, tmp_path: Path) -> None:
    """Also with the lines that are commented out. It takes effect by its name's end only, so none does by itself."""
    assert example.name.endswith(".conf.example")
    unit = copy_of_unit(tmp_path)
    (tmp_path / DROP_INS.name).mkdir()
    copy = Path(shutil.copy(example, tmp_path / DROP_INS.name / example.stem))
    copy.write_text(re.sub(r"(?m)^#([A-Z]\w+=)", r"\1", copy.read_text(encoding="utf-8")), encoding="utf-8")
    assert verified(unit) == (0, "")
    copy.write_text(copy.read_text(encoding="utf-8") + "\nNonsense=yes\n", encoding="utf-8")
    assert "Nonsense" in verified(unit)[1], "it would tell"


def test_the_service_has_little_to_do_harm_with() -> None:
    """By systemd's own measure, from 0 (nothing) to 10; a service without any protection has 9.6."""
    done = analyze("security", "--offline=true", "--no-pager", str(UNIT))
    (exposure,) = re.findall(r"Overall exposure level for outboxd\.service: ([0-9.]+) ", done.stdout)
    assert float(exposure) <= MOST_EXPOSURE, done.stdout


def test_the_unit_gives_a_drain_and_a_start_their_time() -> None:
    """G5: a service manager that kills before publish_timeout + 2 s is over turns every stop into lost leases, and one
    that kills before jobs.drain_timeout + 2 s leaves lines of the job log open.
    """
    assert seconds("TimeoutStopSec") > max(Lane(name="x").publish_timeout_s, Jobs().drain_timeout_s) + 2
    assert seconds("TimeoutStartSec") > Supervisor().startup_timeout_s
    assert value("KillMode") == "mixed", "SIGTERM to the supervisor alone, which tells its workers"
    assert (value("Type"), value("ExecReload")) == ("notify", "/bin/kill -HUP $MAINPID")
    assert (value("Restart"), value("RestartPreventExitStatus")) == ("on-failure", "2")
    assert value("OOMPolicy") == "continue", "a worker that is killed is the supervisor's to replace"


def test_what_the_service_writes_is_for_nobody_else() -> None:
    """G11: events and secrets are in its memory, its database and behind its socket."""
    assert value("LimitCORE") == "0"
    assert (value("UMask"), value("StateDirectoryMode"), value("RuntimeDirectoryMode")) == ("0077", "0700", "0700")
