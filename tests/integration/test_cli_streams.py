"""Standard streams that are closed or full, and Ctrl-C while the program is still being loaded."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services.cli import Cli
from tests.services.daemon import ROOT, write_config

PUBLISHERS = {"null": {"type": "null"}}
NO_SPACE = "outboxd: cannot write the output: No space left on device\n"
CLOSED = "outboxd: cannot write the output: Bad file descriptor\n"
WRITING = [("status",), ("status", "--json"), ("check",), ("init-db", "--print"), ("init-db",), ("dead", "list"),
           ("explain", "e1"), ("--help",), ("status", "--help"), ("--version",)]  # fmt: skip

INTERRUPTED = """
import runpy, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Finder())
sys.argv = ["outboxd", "status"]
runpy.run_module("outboxd", run_name="__main__")
"""


@pytest.fixture(params=["buffered", "unbuffered"])
def cli(tmp_path: Path, sqlite_url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Python gives up what it could not write at different places."""
    monkeypatch.setenv("PYTHONUNBUFFERED", "1" if request.param == "unbuffered" else "")
    config = tmp_path / "outbox.yaml"
    write_config(config, sqlite_url, PUBLISHERS)
    made = Cli(tmp_path, config)
    made("enqueue", "--type", "T", "--room", "r", "--event-id", "e1", "{}").ok()
    return made


def in_shell(cli: Cli, redirections: str, *arguments: str) -> tuple[int, str, str]:
    """(status, standard output, standard error) of a command that a shell redirects."""
    command = ["sh", "-c", f'exec "$@" {redirections}', "sh", sys.executable, "-m", "outboxd", *arguments]
    environ = os.environ | {"PYTHONPATH": str(ROOT), "OUTBOXD_CONFIG": str(cli.config)}
    run = subprocess.run(
        command, cwd=cli.directory, env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    return run.returncode, run.stdout, run.stderr


@pytest.mark.parametrize("arguments", WRITING, ids=" ".join)
def test_a_full_or_closed_standard_output_is_one_plain_line(cli: Cli, arguments: tuple[str, ...]) -> None:
    """It is no fault of the program, and a script must not take it for success."""
    assert in_shell(cli, ">/dev/full", *arguments) == (1, "", NO_SPACE)
    assert in_shell(cli, ">&-", *arguments) == (1, "", CLOSED)


@pytest.mark.parametrize("closed", ["2>&-", "2>/dev/full"])
def test_without_a_standard_error_the_exit_status_has_to_do(cli: Cli, closed: str) -> None:
    """What was asked for is still printed."""
    assert in_shell(cli, closed, "bogus") == (2, "", "")
    assert in_shell(cli, closed, "explain", "e2")[0] == 1
    status, out, _ = in_shell(cli, closed, "status", "--json")
    assert (status, '"room_outbox"' in out) == (0, True)
    assert in_shell(cli, f">/dev/full {closed}", "status") == (1, "", "")
    assert in_shell(cli, f">&- {closed} <&-", "status") == (1, "", "")


def test_a_closed_standard_input_is_said_where_it_is_read(cli: Cli) -> None:
    """And is nobody to ask."""
    new = ("enqueue", "--type", "T", "--room", "r", "-")
    assert in_shell(cli, "<&-", *new) == (1, "", "outboxd: cannot read standard input: Bad file descriptor\n")
    cli("dead", "kill", "e1", "--yes").ok()
    status, _, err = in_shell(cli, "<&-", "dead", "purge")
    assert (status, "Nobody can answer here" in err) == (2, True)


def test_the_daemon_runs_without_standard_streams(cli: Cli) -> None:
    """A service manager may give it none."""
    assert in_shell(cli, ">&- 2>&- <&-", "run", "--until-empty")[0] == 0
    assert cli("explain", "e1", "--json").json["events"][0]["state"] == "delivered"


def test_output_that_the_terminal_s_character_set_lacks_is_one_plain_line(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what to do about it."""
    cli("enqueue", "--type", "T", "--room", "房间", "--event-id", "e2", "{}").ok()
    monkeypatch.setenv("PYTHONIOENCODING", "iso8859-1:strict")
    said = cli("explain", "e2", "--json").failed()
    assert "cannot write the output: '\\u623f' is not in its character set latin-1; set PYTHONUTF8=1" in said


@pytest.mark.parametrize("module", ["click", "outboxd.cli.main", "outboxd.cli.status", "msgspec", "yaml"])
def test_ctrl_c_while_it_is_loaded_is_one_line(tmp_path: Path, module: str) -> None:
    """Loading takes the better part of a command's time, so this is when most interrupts come."""
    command = [sys.executable, "-c", INTERRUPTED.format(module=module)]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (1, "", "outboxd: interrupted\n")


def test_the_installed_program_starts_as_the_module_does() -> None:
    """What the interrupt test tries is what `pip install` puts on the PATH."""
    assert "outboxd = outboxd.cli.entry:main\n" in (ROOT / "setup.cfg").read_text(encoding="utf-8")
    assert "from outboxd.cli.entry import main\n" in (ROOT / "outboxd" / "__main__.py").read_text(encoding="utf-8")
