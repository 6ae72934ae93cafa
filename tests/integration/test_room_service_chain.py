"""The example's room service with the example's own relay: a room's day, rockets, and who may do what twice."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import requests

from outboxd.wakeups import Wakeup, command_id, encode
from outboxd.wakeups.redis import KEY
from room_service.audit import audit
from room_service.database import Database
from room_service.domain import DAY_MS
from room_service.timing import STEPS
from tests.services.redis_server import RedisServer, client
from tests.services.room_service import APP_CODE, TIMEOUT_S, Chain, Service, as_json, chain, query, stream_events
from tests.services.tencent_rooms import APP
from tests.services.wait import wait_for

ROOM = "room-1"
GIFT = {"user_id": "u-1", "to_user_id": "u-2", "gift_id": "rose", "coins": 10, "count": 3}
FAR_FROM_THE_RESET = {"RESET_OFFSET_MS": (time.time_ns() // 1_000_000 + DAY_MS // 2) % DAY_MS}


def opened(run: Chain) -> Service:
    """The first node, with a room of two people."""
    node = run.nodes[0]
    node.account("u-1")
    node.do(ROOM, "create", user_id="u-1", title="one")
    node.do(ROOM, "join", user_id="u-2")
    return node


def test_a_rooms_day(mysql_url: str, own_redis: RedisServer, tmp_path: Path) -> None:
    """Create, join, microphone, gift, leave: each command has its timing line, its events reach the stream in order and
    Tencent IM, and make the room again. What has no picture in IM is delivered without a call.
    """
    with chain(tmp_path, mysql_url, own_redis.url, "a") as run:
        node = opened(run)
        node.do(ROOM, "mic_up", user_id="u-2", seat=3)
        sent, heat = node.do(ROOM, "send_gift", **GIFT)
        node.do(ROOM, "leave", user_id="u-2")
        run.relayed()
        lines = node.lines("room_command_timing")
        assert [line["command"] for line in lines] == ["create", "join", "mic_up", "send_gift", "leave"]
        for line in lines:
            check_timing(line)
        assert [event.room_version for event in stream_events(run.redis_url)] == [1, 2, 3, 4, 5, 6]
        assert node.room(ROOM) == as_json(run.told(ROOM))
        assert (run.table.row(heat)["status"], run.table.row(sent)["status"]) == ("delivered", "delivered")
        assert not [asked for asked in run.tencent.asked if heat in str(asked.body)]
        shown = [data["event_type"] for data in run.tencent.apps[APP].data(ROOM)]
        assert shown == ["RoomUserJoined", "RoomMicUp", "RoomGiftSent", "RoomUserLeft"]
        assert audit(Database(mysql_url)) == []


def check_timing(line: dict[str, Any]) -> None:
    """Every step is told of, and those that were made took time."""
    assert {f"{step}_ms" for step in (*STEPS, "total")} <= line.keys()
    assert sum(line[f"{step}_ms"] for step in STEPS) <= line["total_ms"] + 0.1
    assert line["activity_async_outbox"] is line["tencent_im_async_outbox"] is True
    assert min(line["idempotency_ms"], line["lease_ms"], line["save_mutation_ms"], line["projection_ms"]) > 0
    assert (line["wallet_debit_ms"] > 0) is (line["command"] == "send_gift")
    assert (line["activity_ms"], line["tencent_im_ms"]) == (0, 0)


def test_any_node_takes_a_command_and_the_owner_does_it(
    mysql_url: str, own_redis: RedisServer, tmp_path: Path
) -> None:
    """Asked for at another node, a room's commands are passed on to its owner; at its end it gives the room away."""
    with chain(tmp_path, mysql_url, own_redis.url, "a", "b") as run:
        first, second = run.nodes
        opened(run)
        command, url = {"command_id": "c", "user_id": "u-3"}, f"{second.url}/rooms/{ROOM}/join"
        answer = requests.post(url, json=command, allow_redirects=False, timeout=TIMEOUT_S)
        assert (answer.status_code, answer.headers["Location"]) == (307, f"{first.url}/rooms/{ROOM}/join")
        second.do(ROOM, "join", user_id="u-3")
        assert [line["outcome"] for line in second.lines("room_command_timing")] == ["OwnedElsewhere"] * 2
        first.stop()
        second.do(ROOM, "mic_up", user_id="u-3", seat=0)
        assert second.lines("room_command_timing")[-1]["outcome"] == "done"
        run.relayed()
        assert second.room(ROOM) == as_json(run.told(ROOM))


def test_a_command_is_done_once_however_often_it_is_sent(
    mysql_url: str, own_redis: RedisServer, tmp_path: Path
) -> None:
    """The same command_id gets the same answer, on any node; for another command it is refused. What was refused was
    not done, and leaves no trace.
    """
    with chain(tmp_path, mysql_url, own_redis.url, "a", "b") as run:
        node = opened(run)
        answers = [node.post(ROOM, "send_gift", command_id="g-1", **GIFT) for node in run.nodes * 2]
        assert len({answer.content for answer in answers}) == 1
        assert answers[0].status_code == 200
        joins = [node.post(ROOM, "join", command_id="j-1", user_id="u-3") for node in run.nodes * 2]
        assert {answer.status_code for answer in joins} == {200}  # done anew it would be refused
        assert len({answer.content for answer in joins}) == 1
        assert node.post(ROOM, "send_gift", command_id="g-1", **{**GIFT, "coins": 11}).status_code == 422
        assert node.post("room-2", "create", command_id="g-1", user_id="u-1").status_code == 422
        assert node.post(ROOM, "send_gift", **{**GIFT, "coins": 1000}).status_code == 402
        assert node.post(ROOM, "send_gift", **{**GIFT, "to_user_id": "u-9"}).status_code == 409
        assert node.post(ROOM, "join", user_id="").status_code == 400
        assert node.post(ROOM, "dance", user_id="u-1").status_code == 400
        assert (node.room(ROOM)["gifts"], coins(mysql_url)) == (3, 970)
        assert audit(Database(mysql_url)) == []


def coins(url: str) -> int:
    """Of the one who gives."""
    return int(query(url, "SELECT coins FROM wallet_account WHERE user_id = 'u-1'")[0][0])


def ignited(run: Chain) -> Wakeup:
    """A rocket, and the wake-up that its event asks for."""
    run.nodes[0].do(ROOM, "ignite_rocket", user_id="u-1", level=2)
    rocket = run.nodes[0].room(ROOM)["rocket"]
    names = {"app_code": APP_CODE, "room_id": ROOM, "rocket_id": rocket["rocket_id"], "level": 2}
    return Wakeup(**names, launch_at_ms=rocket["launch_at_ms"], command_id=command_id(*names.values()))


def wake(redis_url: str, wakeup: Wakeup) -> None:
    """Now, as a carrier does that repeats itself or was told nonsense."""
    with closing(client(redis_url)) as redis:
        redis.zadd(KEY, {encode(wakeup): 1})


def woken(run: Chain, count: int) -> list[str]:
    """What the nodes made of so many wake-ups."""

    def outcomes() -> list[str] | None:
        lines = [line for node in run.nodes for line in node.lines("rocket_woken")]
        told = [line["outcome"] for line in sorted(lines, key=lambda line: str(line["time"]))]
        return told if len(told) >= count else None

    return wait_for(outcomes, 20, f"{count} wake-ups to be dealt with")


@pytest.fixture
def flight(mysql_url: str, own_redis: RedisServer, tmp_path: Path) -> Iterator[Chain]:
    """Two nodes whose rockets launch after a second."""
    environ = {"ROCKET_DELAY_MS": 1000, **FAR_FROM_THE_RESET}
    with chain(tmp_path, mysql_url, own_redis.url, "a", "b", **environ) as run:
        opened(run)
        yield run


def test_a_rocket_is_launched_once_and_not_before_its_time(flight: Chain) -> None:
    """By the wake-up that the relay schedules; one that is repeated changes nothing."""
    wakeup = ignited(flight)
    assert woken(flight, 1) == ["launched"]
    flight.relayed()
    launched = stream_events(flight.redis_url)[-1]
    assert (launched.event_type, launched.body["rocket_id"]) == ("RoomRocketLaunched", wakeup.rocket_id)
    assert launched.occurred_at_ms >= wakeup.launch_at_ms
    before = flight.nodes[0].room(ROOM)
    assert before["rocket"]["state"] == "launched"
    for number in range(3):
        wake(flight.redis_url, wakeup)
        woken(flight, 2 + number)
    assert flight.nodes[0].room(ROOM) == before == as_json(flight.told(ROOM))


def test_a_wakeup_launches_nothing_that_the_room_does_not_know(flight: Chain) -> None:
    """Rocket, level, state and time are the room's own."""
    wakeup = ignited(flight)
    others: list[tuple[dict[str, Any], str]] = [
        ({"rocket_id": "rk-99"}, "the room's rocket is not rk-99"),
        ({"level": 3}, "the rocket is at level 2"),
        ({"launch_at_ms": wakeup.launch_at_ms + 1}, f"the rocket launches at {wakeup.launch_at_ms}"),
        ({"room_id": "room-9"}, "there is no such room"),
    ]
    for number, (changes, _) in enumerate(others):
        wake(flight.redis_url, msgspec.structs.replace(wakeup, command_id=f"w-{number}", **changes))
    outcomes = woken(flight, len(others) + 1)
    assert sorted(outcomes) == sorted(["launched", *(outcome for _, outcome in others)])
    flight.relayed()
    assert [event.event_type for event in stream_events(flight.redis_url)].count("RoomRocketLaunched") == 1
    assert flight.nodes[0].room(ROOM) == as_json(flight.told(ROOM))


def test_no_rocket_is_launched_after_the_days_reset(mysql_url: str, own_redis: RedisServer, tmp_path: Path) -> None:
    """It was ignited before the boundary, and its time comes behind it. Then another one may be ignited."""
    reset_at_ms = time.time_ns() // 1_000_000 + 8_000
    environ = {"ROCKET_DELAY_MS": 9_000, "RESET_OFFSET_MS": reset_at_ms % DAY_MS}
    with chain(tmp_path, mysql_url, own_redis.url, "a", **environ) as run:
        node = opened(run)
        wakeup = ignited(run)
        assert node.room(ROOM)["rocket"]["reset_at_ms"] == reset_at_ms < wakeup.launch_at_ms
        assert node.post(ROOM, "ignite_rocket", user_id="u-1", level=1).status_code == 409
        assert woken(run, 1) == ["the day's reset came before the launch"]
        assert node.room(ROOM)["rocket"]["state"] == "ignited"
        node.do(ROOM, "ignite_rocket", user_id="u-1", level=1)
