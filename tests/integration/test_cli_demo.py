"""`outboxd demo`: what a newcomer sees first."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services.cli import Cli
from tests.services.wait import wait_for


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Its temporary files come to be where the test can see them."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    return Cli(tmp_path)


def left(cli: Cli) -> list[str]:
    return sorted(path.name for path in (cli.directory / "tmp").iterdir())


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_every_sample_event_arrives_exactly_once(cli: Cli) -> None:
    """G1, and that nothing needs to be configured; no terminal, so plain lines without colours."""
    said = cli("demo").ok()
    assert "delivered: 1,000 of 1,000 events; 0 duplicates" in said
    assert "rate: " in said
    assert "p50 " in said
    assert "p99 " in said
    assert "Next, with a configuration" in said
    assert f"{sys.executable} -m outboxd --config etc/outbox.yaml enqueue" in said
    assert "\x1b" not in said
    assert left(cli) == []


def test_a_terminal_gets_a_bar(cli: Cli) -> None:
    """It shows that something happens; it must not start a thread in the supervisor."""
    shown = cli.on_terminal("demo", "--events", "50", columns=60)
    assert shown.status == 0
    assert "50/50" in shown.out
    assert "50 of 50 events; 0 duplicates" in shown.out


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_demo_leaves_nothing_behind(cli: Cli, signum: signal.Signals) -> None:
    """No file, no process, and a status that says that it did not end well."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with cli.start("demo", "--events", "1000000", start_new_session=True, **pipes) as process:
        pids = wait_for(lambda: found if len(found := children_of(process.pid)) == 6 else None, 20, "six processes")
        assert left(cli) != []
        process.send_signal(signum)
        _, err = process.communicate(timeout=20)
    assert (process.returncode, err.splitlines()[-1]) == (1, "outboxd: interrupted")
    assert left(cli) == []
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []


def test_it_cannot_be_asked_for_nothing(cli: Cli) -> None:
    """0 events would be delivered at once and prove nothing."""
    cli("demo", "--events", "0").failed(2)
