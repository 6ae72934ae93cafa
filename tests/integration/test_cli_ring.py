"""`outboxd ring`, and what `enqueue` and `check` make of the doorbell."""

import re
import shlex
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from outboxd.producer import channel
from tests.services.cli import Cli
from tests.services.daemon import LANE, ROOT, write_config
from tests.services.redis_server import RedisServer, client
from tests.services.ringing import await_listeners
from tests.services.wait import wait_for

PUBLISHERS = {"nothing": {"type": "null"}}
EVENT = ("--type", "T", "--room", "r")


def configured(tmp_path: Path, database: str, redis_url: str | None) -> Cli:
    """A machine with that Redis."""
    path = tmp_path / "outbox.yaml"
    write_config(path, database, PUBLISHERS, sections={"redis": {"url": redis_url}} if redis_url else None)
    return Cli(tmp_path, path)


@pytest.fixture
def cli(tmp_path: Path, sqlite_url: str, own_redis: RedisServer) -> Cli:
    """One with a private Redis."""
    return configured(tmp_path, sqlite_url, own_redis.url)


@contextmanager
def counting(url: str) -> Iterator[list[object]]:
    """The rings of the lane, once the block has ended."""
    rings: list[object] = []
    with closing(client(url)) as redis, closing(redis.pubsub(ignore_subscribe_messages=True)) as subscription:
        subscription.subscribe(channel(LANE))
        await_listeners(url, 1)
        yield rings
        redis.publish(channel(LANE), "the last one")

        def ended() -> bool:
            message = subscription.get_message(timeout=0.1)
            rings.extend([message] if message else [])
            return bool(message) and message["data"] == b"the last one"

        wait_for(ended, 5, "the last message")
        rings.pop()


def test_it_rings_and_says_who_heard_it(cli: Cli, own_redis: RedisServer) -> None:
    """0 is the answer to "why is it not faster": nobody listens."""
    assert cli("ring", LANE).ok() == "rang room_outbox: heard by 0 workers\n"
    with counting(own_redis.url) as rings:
        assert cli("ring", LANE).ok() == "rang room_outbox: heard by 1 workers\n"
    assert len(rings) == 1


def test_what_keeps_it_from_ringing_is_one_clear_line(
    cli: Cli, own_redis: RedisServer, tmp_path: Path, sqlite_url: str
) -> None:
    """A script tells its own mistakes (2) from a Redis that is away (1)."""
    assert "no_such_lane" in cli("ring", "no_such_lane").failed(2)
    cli("ring").failed(2)
    own_redis.kill()
    line = cli("ring", LANE).failed(1)
    assert "Connection refused" in line
    assert "room_outbox was not rung" in line
    assert "redis.url: none is set" in configured(tmp_path, sqlite_url, None)("ring", LANE).failed(2)


def test_enqueue_rings_after_its_commit(cli: Cli, own_redis: RedisServer) -> None:
    """Once; an event that is due later is nothing to be looked for now."""
    with counting(own_redis.url) as rings:
        cli("enqueue", *EVENT, "{}").ok()
        assert len(cli("enqueue", *EVENT, "--json", "{}").json) == 4
        cli("enqueue", *EVENT, "--delay", "10m", "{}").ok()
    assert len(rings) == 2


def test_enqueue_succeeds_without_a_redis(cli: Cli, own_redis: RedisServer) -> None:
    """The event is there: a script that tried it again would make two of it."""
    own_redis.kill()
    (line,) = cli("enqueue", *EVENT, "{}").ok().splitlines()
    assert re.search(r"^enqueued .*, the doorbell could not be rung: redis\.url: .*Connection refused", line), line
    shown = cli("enqueue", *EVENT, "--json", "{}")
    assert (shown.status, shown.json["lane"]) == (0, LANE)
    assert re.search(r"^the doorbell could not be rung: redis\.url: .*Connection refused.*\n$", shown.err), shown


def test_the_documented_rights_at_redis_are_enough_for_people(
    own_redis: RedisServer, tmp_path: Path, sqlite_url: str
) -> None:
    """The daemon's own are not: then it is said which are missing."""
    document = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    with closing(client(own_redis.url)) as redis:
        for command in re.findall(r"^redis-cli (ACL SETUSER .*)$", document, re.MULTILINE):
            # Not as it stands there: what was once a password is hidden from every text of this process.
            redis.execute_command(*shlex.split(command.replace(">secret", ">let-me-ring")))
    places = {name: own_redis.url.replace("//", f"//{name}:let-me-ring@") for name in ("outboxd_ops", "outboxd")}
    people = configured(tmp_path, sqlite_url, places["outboxd_ops"])
    people("init-db").ok()
    assert people("ring", LANE).ok() == "rang room_outbox: heard by 0 workers\n"
    assert "could not be rung" not in people("enqueue", *EVENT, "{}").ok()
    assert "ok       doorbell" in people("check").ok()
    daemon = configured(tmp_path, sqlite_url, places["outboxd"])
    missing = "the user of redis.url needs +publish &outboxd:doorbell:room_outbox"
    assert missing in daemon("ring", LANE).failed()
    assert missing in daemon("enqueue", *EVENT, "{}").ok()


def test_check_tries_to_listen(cli: Cli, own_redis: RedisServer, tmp_path: Path, sqlite_url: str) -> None:
    """A right that is missing shows as latency only, and nobody would look for it there."""
    cli("init-db")
    assert "ok       doorbell                redis answers, and lets us listen to outboxd:doorbell:room_outbox" in (
        cli("check").ok()
    )
    with closing(client(own_redis.url)) as redis:
        redis.execute_command("ACL", "SETUSER", "relay", "on", ">a-password", "+@all", "~*", "resetchannels")
    other = configured(tmp_path, sqlite_url, own_redis.url.replace("//", "//relay:a-password@"))
    seen = other("check")
    assert (seen.status, "a-password" in seen.out) == (1, False)
    assert "needs +subscribe +ping &outboxd:doorbell:room_outbox" in seen.out
    own_redis.kill()
    seen = other("check")
    assert (seen.status, "failed   doorbell" in seen.out, "Connection refused" in seen.out) == (1, True, True)


def test_without_a_redis_check_says_nothing_of_a_doorbell(tmp_path: Path, sqlite_url: str) -> None:
    """Who does not use it need not read of it."""
    cli = configured(tmp_path, sqlite_url, None)
    cli("init-db")
    assert "doorbell" not in cli("check").ok()
