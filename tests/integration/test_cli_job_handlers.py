"""Handlers of jobs that cannot be used: `check` tells, and the daemon does not start."""

import signal
from pathlib import Path

import pytest

from tests.services.cli import Cli
from tests.services.daemon import ROOT, Daemon, write_config
from tests.services.job_modules import registering, write_module

PUBLISHERS = {"console": {"type": "console"}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of the modules; on PYTHONPATH."""
    (tmp_path / "modules").mkdir()
    return tmp_path / "modules"


@pytest.fixture
def cli(tmp_path: Path, folder: Path) -> Cli:
    return Cli(tmp_path, tmp_path / "outbox.yaml", PYTHONPATH=f"{folder}:{ROOT}")


def configure(tmp_path: Path, sqlite_url: str, *modules: str, enabled: bool = True) -> None:
    jobs = {"handlers": list(modules), "enabled": enabled}
    write_config(tmp_path / "outbox.yaml", sqlite_url, PUBLISHERS, sections={"jobs": jobs})


def line_of(cli: Cli) -> str:
    (found,) = [line for line in cli("check").out.splitlines() if "jobs.handlers" in line]
    return " ".join(found.split())


def test_check_names_the_handlers_that_jobs_can_call(cli: Cli, folder: Path, tmp_path: Path, sqlite_url: str) -> None:
    """Your own beside the built-in ones."""
    configure(tmp_path, sqlite_url, write_module(folder, "shop_jobs", registering("Report")))
    assert line_of(cli) == "ok jobs.handlers registered: HelloWorld, LogClean, OutboxClean, Report, SendSms"


def test_handlers_that_cannot_be_used_keep_the_daemon_from_starting(
    cli: Cli, folder: Path, tmp_path: Path, sqlite_url: str
) -> None:
    """It says what is wrong, all of it, and so does `check`."""
    first = write_module(folder, "shop_jobs", registering("Report"))
    second = write_module(folder, "other_jobs", registering("Report"))
    configure(tmp_path, sqlite_url, first, second, "missing_jobs")
    twice = "jobs.handlers: other_jobs: the handler Report is registered twice, shop_jobs has it already"
    assert cli("init-db").status == 0
    assert line_of(cli).startswith(f"failed jobs.handlers {twice}; jobs.handlers: missing_jobs cannot be imported: ")
    run = cli("run")
    assert run.status == 1
    assert twice in run.err
    assert "missing_jobs cannot be imported: ModuleNotFoundError" in run.err


def test_where_no_jobs_run_nothing_is_imported(cli: Cli, folder: Path, tmp_path: Path, sqlite_url: str) -> None:
    """A node without jobs needs none of the modules."""
    configure(tmp_path, sqlite_url, write_module(folder, "broken_jobs", "1 / 0"), enabled=False)
    assert cli("init-db").status == 0
    assert "jobs.handlers" not in cli("check").out
    assert cli("run", "--until-empty").status == 0


DEADLY = {
    "exits": ("import os; os._exit(3)", "ended its process with exit status 3"),
    "crashes": ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended its process by signal 11"),
    "exits well": ("import os; os._exit(0)", "ended its process with exit status 0"),
    "leaves a child": ("import os; os.fork() and os._exit(3); __import__('time').sleep(5)", "with exit status 3"),
}


@pytest.mark.parametrize(("line", "what"), DEADLY.values(), ids=DEADLY)
def test_a_module_that_ends_its_process_is_named(
    cli: Cli, folder: Path, tmp_path: Path, sqlite_url: str, line: str, what: str
) -> None:
    """`check` goes on to its end; the daemon does not start."""
    configure(tmp_path, sqlite_url, write_module(folder, "fine_jobs"), write_module(folder, "deadly_jobs", line))
    assert cli("init-db").status == 0
    looked = cli("check")
    assert looked.status == 1
    assert "metrics" in looked.out.splitlines()[-1]
    (found,) = [line for line in looked.out.splitlines() if "jobs.handlers" in line]
    assert found.startswith("failed")
    assert "deadly_jobs" in found
    assert what in found
    run = cli("run", "--until-empty")
    assert run.status == 1
    assert "jobs.handlers: deadly_jobs" in run.err
    assert what in run.err


def test_a_module_that_hangs_is_named(cli: Cli, folder: Path, tmp_path: Path, sqlite_url: str) -> None:
    """Nothing waits for it: not `check`, nor the daemon, which does not start."""
    configure(tmp_path, sqlite_url, write_module(folder, "slow_jobs", "import time", "time.sleep(3600)"))
    assert cli("init-db").status == 0
    what = "jobs.handlers: slow_jobs was not imported within 10 s"
    assert line_of(cli).startswith(f"failed jobs.handlers {what}")
    run = cli("run", "--until-empty")
    assert run.status == 1
    assert what in run.err


def test_a_reload_to_a_module_that_hangs_or_dies_is_refused(folder: Path, tmp_path: Path, sqlite_url: str) -> None:
    """What runs goes on as it is."""
    write_module(folder, "slow_jobs", "import time", "time.sleep(3600)")
    write_module(folder, "deadly_jobs", "import os; os._exit(0)")
    configure(tmp_path, sqlite_url)
    with Daemon(tmp_path / "outbox.yaml", tmp_path / "log", "run", PYTHONPATH=f"{folder}:{ROOT}") as daemon:
        daemon.wait_for("worker_started")
        for number, module in enumerate(("deadly_jobs", "slow_jobs"), 1):
            configure(tmp_path, sqlite_url, module)
            daemon.signal(signal.SIGHUP)
            lines = daemon.wait_for("reload_refused", number)
            assert module in str(lines[-1]["error"])
