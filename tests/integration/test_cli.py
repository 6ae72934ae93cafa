"""What holds for every command: options, exit statuses, what becomes of an error."""

import subprocess
import sys
from pathlib import Path

import pytest

from outboxd.cli.main import COMMANDS
from tests.services.cli import Cli
from tests.services.daemon import ROOT, write_config
from tests.services.find import free_port

DEAD = ("list", "show", "replay", "purge", "kill")
JOBS = ("list", "show", "next", "add", "update", "delete", "pause", "resume", "run", "log")
PUBLISHERS = {"console": {"type": "console"}}


@pytest.fixture
def config(tmp_path: Path, sqlite_url: str) -> Path:
    path = tmp_path / "outbox.yaml"
    write_config(path, sqlite_url, PUBLISHERS)
    return path


@pytest.fixture
def cli(tmp_path: Path, config: Path) -> Cli:
    return Cli(tmp_path, config)


@pytest.mark.parametrize("name", [*COMMANDS, *(f"dead {part}" for part in DEAD), *(f"jobs {part}" for part in JOBS)])
def test_every_command_tells_its_options(cli: Cli, name: str) -> None:
    """What a person tries first."""
    said = cli(*name.split(), "--help").ok()
    assert said.startswith(f"Usage: outboxd {name} ")
    assert "--config FILE" in said or name in ("dead", "jobs")


def test_help_loads_no_client_library() -> None:
    """It is typed often, and must not need a database's library to be installed well."""
    program = (
        "import sys; from outboxd.cli.main import main; status = main(['--help'])\n"
        "print(status, *sorted({'MySQLdb', 'pycurl', 'rich', 'sqlite3', 'yaml'} & set(sys.modules)), file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    assert run.stderr.split()[0] == "0"
    assert not {"MySQLdb", "pycurl", "rich"} & set(run.stderr.split())


def test_the_configuration_may_be_named_before_or_after_a_command_or_by_the_environment(
    tmp_path: Path, config: Path
) -> None:
    """The last place where it is given counts least: the environment is the default."""
    bare, by_environment = Cli(tmp_path), Cli(tmp_path, config)
    assert "room_outbox: created, it has version 1" in by_environment("init-db").ok().splitlines()
    for arguments in (
        ("--config", str(config), "status", "--json"),
        ("status", "--json", "--config", str(config)),
        ("status", f"--config={config}", "--json"),
    ):
        assert bare(*arguments).json["lanes"][0]["lane"] == "room_outbox"
    assert "no configuration: give --config FILE or set OUTBOXD_CONFIG" in bare("status").failed(2)
    assert "--config needs a file" in bare("status", "--config").failed(2)


def test_without_anything_the_help_is_shown(tmp_path: Path) -> None:
    """Somebody who types the bare name does not want a daemon to start."""
    shown = Cli(tmp_path)()
    assert shown.status == 2
    assert "init-db" in shown.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("bogus",),
        ("status", "--bogus"),
        ("explain",),
        ("enqueue", "--type", "T"),
        ("pause",),
        ("pause", "no_such_lane"),
        ("dead", "list", "--since", "yesterday"),
        *(("dead", "replay", "--yes", "--rate", rate) for rate in ("0", "-1", "1e400", "inf", "nan")),
        ("dead", "list", "e1", "--event-id", "e2"),
        ("dead", "list", "--limit", "0"),
        ("dead", "list", "--limit", "9" * 30),
        ("dead", "kill"),
        ("dead", "forget"),
        ("enqueue", "--type", "T", "--room", "r", "--delay", "soon", "{}"),
        ("enqueue", "--type", "T", "--room", "r", "no json"),
        ("enqueue", "--type", "T", "--room", "r", "[" * 50_000 + "]" * 50_000),
        ("enqueue", "--type", "T", "--room", "r", "--headers", '{"a":' * 20_000 + "1" + "}" * 20_000, "{}"),
        ("enqueue", "--type", "T", "--room", "r", "--headers", "[]", "{}"),
        ("enqueue", "--type", "", "--room", "r", "{}"),
        ("enqueue", "--type", "x" * 65, "--room", "r", "{}"),
        ("enqueue", "--type", "T", "--room", "x" * 65, "{}"),
        ("enqueue", "--type", "T", "--room", "r", "--app", "x" * 33, "{}"),
        ("enqueue", "--type", "T", "--room", "r", "--event-id", "", "{}"),
        ("enqueue", "--type", "T", "--room", "r", "--event-id", "hällo", "{}"),
        ("enqueue", "--type", "T", "--room", "r", "--event-id", "x" * 65, "{}"),
        ("enqueue", "--type", "T", "--room", "r", "--content-type", "täxt/plain", "{}"),
        ("enqueue", "--type", "T", "--room", "\udcff", "{}"),
    ],
)
def test_wrong_usage_is_status_2_and_one_line(cli: Cli, arguments: tuple[str, ...]) -> None:
    """Scripts tell their own mistakes (2) from what failed (1)."""
    cli(*arguments).failed(2)


def test_what_fits_exactly_is_no_wrong_usage(cli: Cli) -> None:
    """The bounds are those of the columns, no tighter."""
    exact = ("--type", "x" * 64, "--room", "ä" * 64, "--app", "ä" * 32, "--event-id", "x" * 64, "--content-type")
    cli("enqueue", *exact, "x" * 64, "{}").ok()


def test_an_argument_that_is_no_utf_8_is_wrong_usage(cli: Cli) -> None:
    """No database takes it as text; an application's bug report would be the wrong place for it."""
    cli("enqueue", "--type", "T", "--room", "r", "{}").ok()
    for arguments in (("explain", "\udcff"), ("explain", "e", "--app", "\udcff"), ("dead", "kill", "\udcff")):
        assert "an argument is not UTF-8" in cli(*arguments).failed(2)


def test_a_configuration_that_cannot_be_used_is_status_2_with_every_problem(tmp_path: Path, config: Path) -> None:
    """One line each, so that all are corrected at once."""
    config.write_text(config.read_text().replace("poll_interval", "pol_interval").replace("direct:", "directly:"))
    shown = Cli(tmp_path, config)("status")
    assert shown.status == 2
    assert len(shown.err.splitlines()) >= 2
    assert "did you mean poll_interval?" in shown.err


def test_a_database_that_is_away_is_one_line_without_a_traceback(tmp_path: Path, config: Path) -> None:
    """What, where, what to do."""
    port = free_port()
    write_config(
        config, f"mysql://app:secret-word@127.0.0.1:{port}/app", PUBLISHERS, database={"connect_timeout": "1s"}
    )
    said = Cli(tmp_path, config)("status").failed()
    assert f"cannot connect to the database 127.0.0.1:{port}/app" in said
    assert "does database.url name it?" in said
    assert "secret-word" not in said


def test_debug_shows_the_traceback_without_secrets(tmp_path: Path, config: Path) -> None:
    """G11: who asks for more detail gets it, passwords excepted."""
    write_config(config, f"mysql://app:secret-word@127.0.0.1:{free_port()}/app", PUBLISHERS)
    shown = Cli(tmp_path, config)("status", "--debug")
    assert "Traceback (most recent call last)" in shown.err
    assert shown.err.splitlines()[-1].startswith("outboxd: cannot connect")
    assert "secret-word" not in shown.err


def test_commands_that_look_do_not_create_a_database(cli: Cli, tmp_path: Path) -> None:
    """A wrong path must not turn into an empty database that looks well."""
    for arguments in (("status",), ("explain", "e"), ("dead", "list"), ("pause", "room_outbox")):
        assert "run `outboxd init-db`" in cli(*arguments).failed()
    assert not (tmp_path / "outbox.db").exists()


def test_a_reader_that_has_seen_enough_is_no_error(cli: Cli) -> None:
    """`outboxd status | head -1` ends quietly."""
    cli("init-db").ok()
    with cli.start("status", "--watch", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(20) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
