"""The line that `outboxd check` has for the bridge: queue and memory are asked."""

import contextlib
from pathlib import Path
from typing import Any

import pytest

from tests.services.cli import Cli
from tests.services.daemon import write_config
from tests.services.find import free_port
from tests.services.mariadb import execute
from tests.services.redis_server import RedisServer, client
from tests.services.rocketmq import RocketMq, make_topics

pytest_plugins = ["tests.services.databases"]

IM = {"type": "tencent_im", "base_url": "http://127.0.0.1:9", "apps": {"": {
    "sdk_app_id": 1400000001, "identifier": "a", "secret_key": "s"}}}  # fmt: skip


def make_cli(
    folder: Path, database_url: str, sections: dict[str, Any], *, redis_url: str = "", stream: str = ""
) -> Cli:
    """A bridge, and, with a stream, a lane that writes it."""
    config = folder / "outbox.yaml"
    bus = {"bus": {"type": "redis_streams", "url": redis_url, "stream": stream}} if stream else {}
    also = {"console": {"type": "console"}, **bus}
    direct = list(bus) or ["console"]
    write_config(config, database_url, {**also, "im": IM}, sections=sections, direct=direct)
    return Cli(folder, config)


def line(cli: Cli) -> str:
    """What the command says of the bridge."""
    done = cli("check")
    (found,) = [" ".join(text.split()) for text in done.out.splitlines() if text.split()[1] == "bridge"]
    assert "Traceback" not in done.err
    return found


def streaming(redis_url: str, **bridge: object) -> dict[str, Any]:
    """The sections of a bridge that reads a stream, and remembers in the same Redis."""
    return {"redis": {"url": redis_url}, "bridge": {"enabled": True, "source": "redis_streams", **bridge}}


def test_the_stream_is_asked_and_the_memory(tmp_path: Path, sqlite_url: str, own_redis: RedisServer) -> None:
    cli = make_cli(tmp_path, sqlite_url, streaming(own_redis.url), redis_url=own_redis.url, stream="room_outbox")
    cli("init-db").ok()
    reads = "ok bridge reads as hyapp-room-im-bridge: reachable, room_outbox"
    assert line(cli) == f"{reads} will be made with the first event; remembers in redis"
    with contextlib.closing(client(own_redis.url)) as redis:
        redis.xadd("room_outbox", {"m": b"x"})
        assert line(cli) == f"{reads} has 1 entries; remembers in redis"
        redis.delete("room_outbox")
        redis.set("room_outbox", "text")
    assert line(cli).startswith("failed bridge room_outbox is a string, not a stream")
    own_redis.stop()
    assert line(cli).startswith("failed bridge redis://127.0.0.1")


def test_a_stream_that_nobody_writes_is_told(tmp_path: Path, sqlite_url: str, own_redis: RedisServer) -> None:
    """The bridge would wait for ever, and nothing would fail."""
    cli = make_cli(tmp_path, sqlite_url, streaming(own_redis.url, stream="b"), redis_url=own_redis.url, stream="a")
    cli("init-db").ok()
    assert "b will be made with the first event, but no enabled lane of this node writes it" in line(cli)


def test_a_topic_is_asked_for_and_the_table(tmp_path: Path, sqlite_url: str, rocketmq: RocketMq) -> None:
    make_topics(rocketmq, ["look-normal"])
    make_topics(rocketmq, ["look-delay"], "DELAY")

    def said(topic: str, endpoints: str = rocketmq.endpoints) -> str:
        mq = {"enabled": True, "endpoints": endpoints, "room_outbox": {"topic": topic}}
        return line(make_cli(tmp_path, sqlite_url, {"rocketmq": mq, "bridge": {"enabled": True}}))

    assert "run `outboxd init-db`" in said("look-normal")
    make_cli(tmp_path, sqlite_url, {})("init-db").ok()
    found = said("look-normal")
    assert found.startswith("ok bridge reads as hyapp-room-im-bridge: ")
    assert "serves the topic look-normal (NORMAL)" in found
    assert found.endswith("; remembers in outboxd_inbox")
    assert "failed bridge" in (wrong := said("look-delay"))
    assert "takes messages of type DELAY, not NORMAL" in wrong
    assert said("look-missing").startswith("failed bridge")
    assert said("look-normal", f"127.0.0.1:{free_port()}").startswith("failed bridge")


@pytest.mark.parametrize("kind", ["sqlite", "mysql"])
def test_without_its_table_the_remedy_is_told_once(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(f"{kind}_url")
    mq = {"enabled": True, "endpoints": f"127.0.0.1:{free_port()}"}
    cli = make_cli(tmp_path, url, {"rocketmq": mq, "bridge": {"enabled": True}})
    if kind == "mysql":
        cli("init-db").ok()
        execute(url, "DROP TABLE outboxd_inbox")
    found = line(cli)
    assert found.startswith("failed bridge")
    assert found.count("run `outboxd init-db`") == 1
