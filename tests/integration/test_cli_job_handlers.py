"""Handlers of jobs that cannot be used: `check` tells, and the daemon does not start."""

from pathlib import Path

import pytest

from tests.services.cli import Cli
from tests.services.daemon import ROOT, write_config
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
