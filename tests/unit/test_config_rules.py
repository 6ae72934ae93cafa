"""The rules between keys: lanes and what they inherit, fallbacks, leases, publishers' names, the node's name."""

import dataclasses
import hashlib
import socket
from typing import Any

import pytest

from outboxd.config.load import parse
from outboxd.config.schema import Config, Console, Lane, Null, PythonCallable
from outboxd.errors import ConfigError

CONSOLE = "publishers: {console: {type: console}, nothing: {type: 'null'}}\n"
NO_PUBLISHER = (
    "lanes.a: names no publisher, list some in direct, here or in outbox_worker.direct (known here: console, nothing)"
)


def config(text: str) -> Config:
    return parse(CONSOLE + text, {}, "outbox.yaml")


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text, {}, "outbox.yaml")
    return list(caught.value.problems)


def test_without_lanes_room_outbox_alone_is_enabled() -> None:
    for lanes in ("", "lanes:\n", "lanes: {}\n"):
        made = config(lanes + "outbox_worker: {direct: [console]}")
        assert {name: lane.enabled for name, lane in made.lanes.items()} == {
            "room_outbox": True,
            "room_robot_outbox": False,
        }


def test_only_lanes_that_are_named_exist_when_some_are() -> None:
    made = config("outbox_worker: {direct: [console]}\nlanes: {orders: null, room_robot_outbox: {}}")
    assert {name: lane.enabled for name, lane in made.lanes.items()} == {"orders": True, "room_robot_outbox": True}


def test_a_lane_inherits_and_overrides() -> None:
    made = config(
        "outbox_worker: {direct: [console], batch_size: 7, columns: {id: a}}\n"
        "lanes: {one: {}, two: {batch_size: 9, direct: [nothing], columns: {id: b}}}"
    )
    assert made.lanes["one"] == Lane(name="one", direct=("console",), batch_size=7, columns={"id": "a"})
    assert made.lanes["two"] == Lane(name="two", direct=("nothing",), batch_size=9, columns={"id": "b"})


def test_every_kind_of_publisher_is_read() -> None:
    made = config(
        "outbox_worker: {direct: [console]}\n"
        "lanes: {room_outbox: {}}"
    )  # fmt: skip
    assert made.publishers == {"console": Console(name="console"), "nothing": Null(name="nothing")}
    own = parse("publishers: {own: {type: python, target: 'a.b:c'}}\nlanes: {x: {direct: [own]}}", {}, "x").publishers
    assert own == {"own": PythonCallable(name="own", target="a.b:c", threads=8)}


@pytest.mark.parametrize(
    ("setting", "attribute", "used", "shown"),
    [
        ("poll_interval: 0s", "poll_interval_s", 1.0, "'0s' is not above zero, using 1s"),
        ("poll_interval: -5s", "poll_interval_s", 1.0, "'-5s' is not above zero, using 1s"),
        ("batch_size: 0", "batch_size", 100, "0 is not above zero, using 100"),
        ("concurrency: -1", "concurrency", 4, "-1 is not above zero, using 4"),
        ("publish_timeout: 0", "publish_timeout_s", 3.0, "0 is not above zero, using 3s"),
        ("max_retry_count: 0", "max_retry_count", 10, "0 is not above zero, using 10"),
        ("initial_backoff: 0", "initial_backoff_s", 5.0, "0 is not above zero, using 5s"),
        ("max_backoff: -1ms", "max_backoff_s", 300.0, "'-1ms' is not above zero, using 5m"),
    ],
)
def test_what_is_not_above_zero_falls_back_with_one_warning(
    setting: str, attribute: str, used: Any, shown: str
) -> None:
    """One warning, however many lanes inherit the setting."""
    made = config(f"outbox_worker: {{direct: [console], {setting}}}\nlanes: {{a: {{}}, b: {{}}}}")
    assert {getattr(lane, attribute) for lane in made.lanes.values()} == {used}
    assert made.warnings == (f"outbox_worker.{setting.partition(':')[0]}: {shown}",)


def test_a_lane_falls_back_to_what_holds_for_all_lanes() -> None:
    made = config("outbox_worker: {direct: [console], batch_size: 7}\nlanes: {a: {batch_size: 0}}")
    assert made.lanes["a"].batch_size == 7
    assert made.warnings == ("lanes.a.batch_size: 0 is not above zero, using 7",)


def test_max_backoff_is_raised_to_initial_backoff_with_one_warning() -> None:
    made = config("outbox_worker: {direct: [console], initial_backoff: 10m}\nlanes: {a: {}, b: {batch_size: 1}}")
    assert {lane.max_backoff_s for lane in made.lanes.values()} == {600}
    assert made.warnings == ("outbox_worker.max_backoff: 5m is below initial_backoff, raising it to 10m",)
    made = config("outbox_worker: {direct: [console]}\nlanes: {a: {max_backoff: 1s}}")
    assert made.lanes["a"].max_backoff_s == 5
    assert made.warnings == ("lanes.a.max_backoff: 1s is below initial_backoff, raising it to 5s",)


def test_the_restart_backoff_falls_back_and_is_raised_likewise() -> None:
    made = config("outbox_worker: {direct: [console]}\nsupervisor: {restart_backoff: 0, restart_backoff_max: 100ms}")
    assert (made.supervisor.restart_backoff_s, made.supervisor.restart_backoff_max_s) == (0.5, 0.5)
    assert made.warnings == (
        "supervisor.restart_backoff: 0 is not above zero, using 500ms",
        "supervisor.restart_backoff_max: 100ms is below restart_backoff, raising it to 500ms",
    )


@pytest.mark.parametrize(("publish_timeout", "lease_s"), [("1s", 15), ("4s", 15), ("10s", 32), ("1m", 182)])
def test_a_lease_that_is_not_given_fits_the_publish_timeout(publish_timeout: str, lease_s: float) -> None:
    """G4: a publish must end before its lease does; nobody who raises a time-out should have to know the formula."""
    made = config(
        f"outbox_worker: {{direct: [console]}}\nlanes: {{a: {{publish_timeout: {publish_timeout}}}, b: null}}"
    )
    assert made.lanes["a"].lease_s == lease_s
    assert made.lanes["b"].lease_s == 15
    assert made.warnings == ()


def test_a_lease_of_exactly_three_publish_timeouts_and_two_seconds_is_taken() -> None:
    assert config("outbox_worker: {direct: [console], lease: 11s}").lanes["room_outbox"].lease_s == 11


@pytest.mark.parametrize(
    ("worker", "lane", "problem"),
    [
        ("lease: 5s", "", "outbox_worker.lease: 5s is too short for publish_timeout 3s, give at least 11s"),
        (
            "lease: 20s",
            "publish_timeout: 10s",
            "lanes.a.lease: 20s is too short for publish_timeout 10s, give at least 32s",
        ),
        (
            "publish_timeout: 10s",
            "lease: 15s",
            "lanes.a.lease: 15s is too short for publish_timeout 10s, give at least 32s",
        ),
    ],
)
def test_a_lease_that_is_given_and_too_short_is_refused(worker: str, lane: str, problem: str) -> None:
    """Given anywhere counts: silently overruling what was written would be worse than refusing it."""
    text = f"{CONSOLE}outbox_worker: {{direct: [console], {worker}}}\nlanes: {{a: {{{lane}}}}}"
    assert problems(text) == [problem + " (3 x publish_timeout + 2s)"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("lanes: {a: {}}", [NO_PUBLISHER]),
        ("lanes: {a: {direct: []}}", [NO_PUBLISHER]),
        ("lanes: {a: {direct: [consle, nothing, 5]}}",
         ["lanes.a.direct[2]: expected text, got a number, put it in quotes",
          "lanes.a.direct[0]: unknown publisher 'consle', did you mean console?"]),
        ("outbox_worker: {direct: [x]}\nlanes: {a: {}, b: {}}",
         ["outbox_worker.direct[0]: unknown publisher 'x', known here: console, nothing"]),
        ("lanes: {a: {direct: console}}", ["lanes.a.direct: expected a list, got text, write [one, two]"]),
        ("lanes: {a: {direct: [console, console]}}", ["lanes.a.direct: names 'console' twice, keep one"]),
        (f"lanes: {{a: {{direct: [{', '.join('abcdefghi')}]}}}}",
         ["lanes.a.direct: names 9 publishers, the most is 8"]),
        ("outbox_worker: {direct: [console]}\nlanes: {'a-b': {}}",
         ["lanes.a-b: a lane is named like its table: letters, digits and _, at most 48 of them"]),
        ("outbox_worker: {direct: [console]}\nlanes: {outboxd_lane: {}}",
         ["lanes.outboxd_lane: tables whose names begin with outboxd_ belong to outboxd itself, rename the table"]),
        ("outbox_worker: {direct: [console]}\nlanes: [a]", ["lanes: expected a mapping (key: value), got a list"]),
    ],
)  # fmt: skip
def test_lanes_that_cannot_be_used_are_refused(text: str, found: list[str]) -> None:
    assert problems(CONSOLE + text) == found


def test_a_lane_that_is_not_enabled_needs_no_publisher() -> None:
    made = config("lanes: {a: {enabled: false}}")
    assert made.warnings == ("lanes: no lane is enabled, so nothing is relayed",)


@pytest.mark.parametrize(
    ("worker", "lane", "warnings"),
    [
        ("ordering: room, on_dead: block", "", ()),
        ("on_dead: block", "ordering: room", ()),
        ("ordering: room", "on_dead: block", ()),
        ("on_dead: continue", "", ()),
        ("on_dead: block", "", ("outbox_worker.on_dead: block does nothing, since no lane is ordered: {set}",)),
        ("", "on_dead: block", ("lanes.a.on_dead: block does nothing, since the lane is not ordered: {set}",)),
        (
            "ordering: room",
            "ordering: none, on_dead: block",
            ("lanes.a.on_dead: block does nothing, since the lane is not ordered: {set}",),
        ),
    ],
)
def test_block_on_a_lane_without_order_is_warned_about(worker: str, lane: str, warnings: tuple[str, ...]) -> None:
    """Who writes it expects that nothing follows a dead letter, and would find out from a receiver's data."""
    made = config(f"outbox_worker: {{direct: [console], {worker}}}\nlanes: {{a: {{{lane}}}}}")
    assert made.warnings == tuple(line.format(set="set ordering: room, too") for line in warnings)


def test_what_an_ordered_lane_is_follows_from_both_keys() -> None:
    made = config(
        "outbox_worker: {direct: [console], on_dead: block}\nlanes: {a: {ordering: room}, b: {}, "
        "c: {ordering: room, on_dead: continue}}"
    )
    assert {name: (lane.is_ordered, lane.blocks_on_dead) for name, lane in made.lanes.items()} == {
        "a": (True, True), "b": (False, False), "c": (True, False),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("worker", "lane", "found"),
    [
        ("ordering: room, concurrency: 65", "", ["outbox_worker.concurrency: 65 {more}"]),
        ("concurrency: 65", "ordering: room", ["lanes.a.concurrency: 65 {more}"]),
        ("ordering: room", "concurrency: 512", ["lanes.a.concurrency: 512 {more}"]),
        ("ordering: sorted", "on_dead: stop", [
            "outbox_worker.ordering: unknown name 'sorted', known here: none, room",
            "lanes.a.on_dead: unknown name 'stop', known here: continue, block",
        ]),
    ],
)  # fmt: skip
def test_an_ordered_lane_has_no_more_workers_than_partitions(worker: str, lane: str, found: list[str]) -> None:
    more = "workers are more than an ordered lane can use, give at most 64: its rooms are leased in so many parts"
    text = f"{CONSOLE}outbox_worker: {{direct: [console], {worker}}}\nlanes: {{a: {{{lane}}}}}"
    assert problems(text) == [line.format(more=more) for line in found]


def test_as_many_workers_as_partitions_are_taken_and_more_without_order() -> None:
    made = config("outbox_worker: {direct: [console], ordering: room, concurrency: 64}\n"
                  "lanes: {a: {}, b: {ordering: none, concurrency: 65}}")  # fmt: skip
    assert {name: lane.concurrency for name, lane in made.lanes.items()} == {"a": 64, "b": 65}


def test_all_problems_are_told_at_once() -> None:
    """A person mends a file once, not once for each problem."""
    found = problems(
        "node_id: a b\ndatabase: {url: postgres://h/x}\nlog: {level: loud}\n"
        "publishers: {x: {type: http}}\nlanes: {room_outbox: {batch_sise: 1}}"
    )
    assert found == [
        "node_id: may hold visible ASCII without spaces and slashes only, e.g. relay-1",
        "database.url: unknown scheme, write mysql://user@host:3306/name or sqlite:///file.db",
        "publishers.x: has no url, which type http needs",
        "lanes.room_outbox.batch_sise: unknown key, did you mean batch_size?",
        "lanes.room_outbox: names no publisher, list some in direct, here or in outbox_worker.direct (known here: x)",
        "log.level: unknown name 'loud', known here: debug, info, warning, error",
    ]


def test_a_flood_of_problems_is_bounded() -> None:
    found = problems("".join(f"key{number}: 1\n" for number in range(1000)))
    assert len(found) == 101
    assert found[-1] == "outbox.yaml: 901 more, mend these first"


def test_a_publisher_with_problems_of_its_own_is_still_known_to_lanes() -> None:
    found = problems("publishers: {hook: {type: http}}\noutbox_worker: {direct: [hook]}")
    assert found == ["publishers.hook: has no url, which type http needs"]


@pytest.mark.parametrize(
    ("host", "node_id"), [("relay-1", "relay-1"), ("a b/c", "a-b-c"), ("", "localhost"), ("höst", "h-st")]
)
def test_the_node_is_named_like_its_host(monkeypatch: pytest.MonkeyPatch, host: str, node_id: str) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    for given in ("", "node_id: null\n", "node_id: ''\n", "node_id: ${NODE:-}\n"):
        assert config(given + "outbox_worker: {direct: [console]}").node_id == node_id


def test_a_long_node_id_is_cut_and_keeps_four_characters_of_its_hash() -> None:
    """It must fit the worker_id column; two long names that differ at the end must not become one."""
    name = "n" * 41
    made = config(f"node_id: {name}\noutbox_worker: {{direct: [console]}}")
    assert made.node_id == "n" * 40 + hashlib.sha256(name.encode()).hexdigest()[:4]
    assert made.warnings == (f"node_id: the name has more than 40 characters, using {made.node_id}",)
    assert config(f"node_id: {name[1:]}\noutbox_worker: {{direct: [console]}}").node_id == "n" * 40


def test_a_configuration_is_frozen() -> None:
    made = config("outbox_worker: {direct: [console]}")
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.node_id = "other"  # type: ignore[misc]
