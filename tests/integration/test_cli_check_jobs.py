"""`check` tries what scheduled jobs need: rights to delete, locks in Redis."""

import secrets
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.services.cli import Cli
from tests.services.daemon import write_config
from tests.services.grants import grants
from tests.services.mariadb import execute
from tests.services.redis_server import RedisServer, client

PUBLISHERS = {"null": {"type": "null"}}
RUNS_JOBS = {"jobs": {"enabled": True}}


def line_of(cli: Cli, item: str) -> str:
    """Of `check`, without its runs of blanks."""
    (found,) = [line for line in cli("check").out.splitlines() if line[9:].startswith(f"{item}  ")]
    return " ".join(found.split())


@pytest.fixture
def name(mysql_url: str, tmp_path: Path) -> Iterator[str]:
    """A user with the daemon's rights, and its configuration: the lane has a retention."""
    server, _, database = mysql_url.rpartition("/")
    user = f"outboxd_{secrets.token_hex(4)}"
    execute(server, f"CREATE USER '{user}'@'%' IDENTIFIED BY 'a-word-{user}'")
    lanes = {"room_outbox": {"retention": "168h"}}
    write_config(tmp_path / "root.yaml", mysql_url, PUBLISHERS, lanes=lanes)
    Cli(tmp_path, tmp_path / "root.yaml")("init-db").ok()
    execute(server, *grants("outboxd", database, user))
    url = mysql_url.replace("root@", f"{user}:a-word-{user}@")
    write_config(tmp_path / "outbox.yaml", url, PUBLISHERS, lanes=lanes, sections=RUNS_JOBS)
    yield user
    execute(server, f"DROP USER '{user}'@'%'")


@pytest.mark.parametrize(("table", "needed_by"), [("outboxd_job_log", "LogClean"), ("room_outbox", "OutboxClean")])
def test_a_right_to_delete_that_is_missing_is_told(
    name: str, mysql_url: str, tmp_path: Path, table: str, needed_by: str
) -> None:
    """Else it is found out by the job, in the night."""
    server, _, database = mysql_url.rpartition("/")
    cli = Cli(tmp_path, tmp_path / "outbox.yaml")
    assert line_of(cli, "jobs").startswith("ok")
    execute(server, f"REVOKE DELETE ON {database}.{table} FROM '{name}'@'%'")
    found = line_of(cli, "jobs")
    assert found.startswith("failed")
    assert f"needs DELETE on {table}" in found
    assert needed_by in found


def test_a_right_to_the_locks_that_is_missing_is_told(own_redis: RedisServer, sqlite_url: str, tmp_path: Path) -> None:
    """And which one; a server that is away is told as that."""
    url = own_redis.url.replace("redis://", "redis://limited:limited-word@")
    write_config(tmp_path / "outbox.yaml", sqlite_url, PUBLISHERS, sections={**RUNS_JOBS, "redis": {"url": url}})
    cli = Cli(tmp_path, tmp_path / "outbox.yaml")
    cli("init-db").ok()
    with closing(client(own_redis.url)) as admin:
        admin.execute_command("ACL", "SETUSER", "limited", "on", ">limited-word", "resetchannels", "-@all", "+hello")
        found = line_of(cli, "jobs locks")
        assert found.startswith("failed jobs locks Redis refused it: ")
        assert "~job:lock:* +eval" in found
        admin.execute_command("ACL", "SETUSER", "limited", "~job:lock:*", "+eval", "+get", "+set", "+del", "+pexpire")
        assert line_of(cli, "jobs locks") == "ok jobs locks redis lets us take and free them"
        assert not admin.exists("job:lock:0")
    own_redis.stop()
    assert "Redis gave no answer" in line_of(cli, "jobs locks")
