"""The rights that docs/operations.md names are enough for each kind of work, and for no more than that."""

import re
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.older import OLDER
from tests.services.cli import Cli
from tests.services.daemon import write_config
from tests.services.grants import grants
from tests.services.mariadb import Server, execute

PUBLISHERS = {"null": {"type": "null"}}
USERS = ("outboxd_init", "outboxd_ops", "outboxd")
NEW = ("enqueue", "--type", "T", "--room", "r", "--event-id")


@pytest.fixture
def users(mysql_url: str, tmp_path: Path) -> Iterator[dict[str, Cli]]:
    """The command line as each of the three users, each with its own configuration and rights."""
    server, _, database = mysql_url.rpartition("/")
    made: dict[str, Cli] = {}
    names = {user: f"{user}_{secrets.token_hex(4)}" for user in USERS}
    for user, name in names.items():
        execute(server, f"CREATE USER '{name}'@'%' IDENTIFIED BY 'secret-{name}'")
        config = tmp_path / f"{user}.yaml"
        write_config(config, mysql_url.replace("root@", f"{name}:secret-{name}@"), PUBLISHERS, concurrency=1)
        made[user] = Cli(tmp_path, config)

    execute(server, *grants("outboxd_init", database, names["outboxd_init"]))
    made["outboxd_init"]("init-db").ok()
    for user in ("outboxd_ops", "outboxd"):
        execute(server, *grants(user, database, names[user]))
    yield made
    execute(server, *(f"DROP USER '{name}'@'%'" for name in names.values()))


def test_the_documented_rights_are_enough(users: dict[str, Cli]) -> None:
    """A right that is missing would be found in production."""
    people, daemon = users["outboxd_ops"], users["outboxd"]
    for name in ("e1", "e2", "e3"):
        people(*NEW, name, "{}").ok()
    people("dead", "kill", "e1", "--yes").ok()
    people("dead", "kill", "e2", "--yes").ok()
    people("dead", "replay", "e1").ok()
    people("pause", "room_outbox").ok()
    people("resume", "room_outbox").ok()
    run = daemon("run", "--until-empty")
    assert (run.status, "error" in run.err) == (0, False), run
    assert people("explain", "e1", "--json").json["events"][0]["state"] == "delivered"
    people("dead", "show", "e2").ok()
    people("dead", "purge", "--yes").ok()
    people("status").ok()
    people("check").ok()
    use_jobs(people)
    users["outboxd_init"]("init-db").ok()


def use_jobs(cli: Cli) -> None:
    """Everything that can be done with them."""
    new = ("jobs", "add", "--name", "n", "--cron", "@daily", "--url", "HelloWorld", "--json")
    key = str(cli(*new).json["id"])
    changes = (f"update {key} --name m", f"run {key} --no-wait", f"resume {key}", f"pause {key}", f"delete {key} --yes")
    for command in changes:
        cli("jobs", *command.split()).ok()
    for command in ("log", "list", "show 1"):
        cli("jobs", *command.split()).ok()


def test_the_daemons_rights_are_enough_for_the_job_api(users: dict[str, Cli], mysql_url: str) -> None:
    """Which makes the statements of the commands; and LogClean deletes."""
    use_jobs(users["outboxd"])
    server, _, database = mysql_url.rpartition("/")
    user = name_of(users["outboxd"], "outboxd")
    daemons = f"mysql://{user}:secret-{user}@{server.partition('@')[2]}/{database}"
    execute(daemons, "DELETE FROM outboxd_job_log WHERE id = 1")


def test_a_right_that_is_missing_is_told_with_where_to_look(users: dict[str, Cli]) -> None:
    """And the daemon's user can neither add nor delete events."""
    daemon = users["outboxd"]
    assert "docs/operations.md lists the grants" in daemon(*NEW, "e1", "{}").failed()
    assert "docs/operations.md lists the grants" in daemon("pause", "room_outbox").failed()


def test_the_documented_rights_are_enough_to_migrate_an_older_table(users: dict[str, Cli], mysql_url: str) -> None:
    """Its columns change, a trigger guards it against producers' NULLs, its rows are mended."""
    execute(mysql_url, "DROP TABLE room_outbox", "DROP TABLE outboxd_schema", "DROP TABLE outboxd_lane")
    execute(mysql_url, OLDER.format(envelope="MEDIUMTEXT", charset="utf8mb4"))
    row = "('e1', 'T', 'r', '{}', 'published', 7)"
    execute(
        mysql_url,
        f"INSERT INTO room_outbox (event_id, event_type, room_id, envelope, status, created_at_ms) VALUES {row}",
    )
    said = users["outboxd_init"]("init-db").ok()
    assert "room_outbox: stop its older workers first" in said
    assert "room_outbox: migrated, it has version 1" in said
    assert users["outboxd_ops"]("explain", "e1", "--json").json["events"][0]["state"] == "delivered"


def order_rooms(users: dict[str, Cli]) -> None:
    """In everybody's configuration."""
    for cli in users.values():
        assert cli.config is not None
        worker = "outbox_worker:\n  ordering: room\n  on_dead: block\n"
        text = cli.config.read_text(encoding="utf-8").replace("outbox_worker:\n", worker)
        cli.config.write_text(text, encoding="utf-8")


def test_the_documented_rights_are_enough_for_a_lane_that_throws_events_away(
    users: dict[str, Cli], mysql_url: str
) -> None:
    """Stale events, cleanup, a prune by a person; `check` names what is missing before."""
    for cli in users.values():
        assert cli.config is not None
        lanes = "room_robot_outbox: {stale_discard_after: 30s, cleanup_interval: 100ms, cleanup_terminal_after: 1h}"
        text = cli.config.read_text(encoding="utf-8").replace("  room_outbox: {}\n", f"  {lanes}\n")
        cli.config.write_text(text, encoding="utf-8")
    users["outboxd_init"]("init-db").ok()
    server, _, database = mysql_url.rpartition("/")
    for user in ("outboxd_ops", "outboxd"):
        lines = [line.replace("room_outbox ", "room_robot_outbox ") for line in grants(user, database)]
        name = name_of(users[user], user)
        execute(server, *(line.replace(f"'{user}'@", f"'{name}'@") for line in lines))
    daemon = users["outboxd"]
    execute(mysql_url, *(
        "INSERT INTO room_robot_outbox (event_id, event_type, room_id, envelope, status, created_at_ms, "
        f"delivered_at_ms) VALUES ('e{number}', 't', 'r', '', '{status}', 5, 5)"
        for number, status in enumerate(("pending", "delivered", "delivered"))
    ))  # fmt: skip
    daemon("check").ok()
    assert "robot_outbox_stale_discarded" in daemon("run", "--until-empty").err
    users["outboxd_ops"]("prune", "room_robot_outbox", "--older-than", "1h", "--yes").ok()
    name = name_of(daemon, "outboxd")
    execute(server, f"REVOKE DELETE ON {database}.room_robot_outbox FROM '{name}'@'%'")
    assert "DELETE command denied" in daemon("check").out
    execute(server, f"GRANT DELETE ON {database}.room_robot_outbox TO '{name}'@'%'")
    execute(server, f"REVOKE UPDATE (last_cleanup_ms) ON {database}.outboxd_lane FROM '{name}'@'%'")
    assert "UPDATE command denied" in daemon("check").out


def name_of(cli: Cli, user: str) -> str:
    """At the server."""
    assert cli.config is not None
    return str(re.findall(rf"{user}_[0-9a-f]{{8}}", cli.config.read_text(encoding="utf-8"))[0])


def test_the_documented_rights_are_enough_for_an_ordered_lane(users: dict[str, Cli], mysql_url: str) -> None:
    """To make what it needs in a table that is there, to look at its rooms, and to let one go on."""
    order_rooms(users)
    assert "room_outbox: migrated, it has version 1" in users["outboxd_init"]("init-db").ok()
    people = users["outboxd_ops"]
    for name in ("e1", "e2"):
        people(*NEW, name, "{}").ok()
    people("dead", "kill", "e1", "--yes").ok()
    assert people("explain", "e2", "--json").json["events"][0]["room"]["front"]["event_id"] == "e1"
    assert "1 room has a dead letter in front" in people("status").ok()
    people("dead", "skip", "e1", "--yes").ok()
    people("check").ok()
    server, _, database = mysql_url.rpartition("/")
    user = name_of(users["outboxd"], "outboxd")
    daemons = f"mysql://{user}:secret-{user}@{server.partition('@')[2]}/{database}"
    execute(daemons, "UPDATE outboxd_partition SET lock_until_ms = 1")


@pytest.mark.parametrize(
    ("user", "command", "right"),
    [
        ("outboxd", "run", "SELECT, UPDATE"),
        ("outboxd", "check", "SELECT, UPDATE"),
        ("outboxd_ops", "check", "SELECT, UPDATE"),
        ("outboxd", "check", "UPDATE"),
    ],
)
def test_a_right_on_partitions_that_is_missing_is_named(
    user: str, command: str, right: str, users: dict[str, Cli], mysql_url: str
) -> None:
    """Told to run `init-db` instead, a person would learn there that nothing is to do; told nothing, he would learn it
    from workers that end at their first claim."""
    order_rooms(users)
    users["outboxd_init"]("init-db").ok()
    server, _, database = mysql_url.rpartition("/")
    execute(server, f"REVOKE {right} ON {database}.outboxd_partition FROM '{name_of(users[user], user)}'@'%'")
    shown = users[user](command)
    said = shown.out + shown.err
    assert shown.status == 1
    assert re.search(rf"{right.partition(',')[0]} command denied to user .*outboxd_partition.*\(1142\)", said), said
    assert "docs/operations.md lists the grants" in said
    assert "init-db" not in said


def test_who_only_looks_needs_to_read_only(users: dict[str, Cli]) -> None:
    """The daemon's user can do a little more than that, and no more is asked of it here."""
    users["outboxd_ops"](*NEW, "e1", "{}").ok()
    for arguments in (("status",), ("explain", "e1"), ("dead", "list"), ("check",)):
        users["outboxd"](*arguments).ok()


def test_a_server_that_is_read_only_fails_the_check(users: dict[str, Cli], mysql_server: Server) -> None:
    """G10: the daemon would wait for ever; `check` says so, with no more rights than the daemon has."""
    daemon = users["outboxd"]
    assert "is there, up to date, and can be written" in daemon("check").ok()
    execute(mysql_server.url, "SET GLOBAL read_only = 1")
    try:
        shown = daemon("check")
    finally:
        execute(mysql_server.url, "SET GLOBAL read_only = 0")
    assert (shown.status, shown.err) == (1, "")
    (line,) = [line for line in shown.out.splitlines() if line.startswith("failed")]
    assert "table room_outbox" in line
    assert "read-only" in line
    assert "point database.url at the server that takes writes" in line


def test_a_right_to_write_that_is_missing_fails_the_check(users: dict[str, Cli], mysql_url: str) -> None:
    """SELECT alone lets the daemon connect, and then fails at the first claim."""
    user = name_of(users["outboxd"], "outboxd")
    server, _, database = mysql_url.rpartition("/")
    execute(server, f"REVOKE UPDATE ON {database}.room_outbox FROM '{user}'@'%'")
    said = users["outboxd"]("check").out
    assert "cannot be written" in said
    assert "docs/operations.md lists the grants" in said
