"""Any text that producers and receivers come up with, through the whole relay."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event

from tests.services.daemon import Daemon, write_config
from tests.services.lanes import Table, event, table_of
from tests.services.receiver import Receiver
from tests.services.receiver_answers import Request

EVIL = "a\r\nX-Injected: yes\r\n\r\nGET / HTTP/1.1\r\nHost: evil\r\n\r\n"

ROOMS = [
    "room-1", "", " ", "  both  ends  ", "tab\there", "line\nbreak", "cr\rlf\r\n", "null\0byte", '"quoted"', "'single'",
    "100%", "%41", "%", "a,b;c=d", "naïve café", "房间-火箭", "مرحبا", "🚀👩‍👩‍👧‍👦", "\u202eto the left", "\u2028line",
    "x" * 64, "🚀" * 64, "back\\slash", "<b>&amp;</b>", "{json: true}", "DROP TABLE room_outbox; --",
    "\x7f\x1b[31m", "é", "e\u0301",
]  # fmt: skip


@dataclass(frozen=True)
class Lane:
    """A lane over HTTP that runs."""

    table: Table
    receiver: Receiver
    daemon: Daemon

    def relay(self) -> list[Request]:
        """Wait until nothing is left to do; the requests."""
        self.daemon.wait_until(self.table.is_done, "every event to come to an end")
        return list(self.receiver.requests)


@contextmanager
def lane_of(url: str, tmp_path: Path, **web: object) -> Iterator[Lane]:
    """One whose first event is delivered."""
    with Receiver() as receiver:
        publishers = {"web": {"type": "http", "url": receiver.url, **web}}
        config = write_config(tmp_path / "outbox.yaml", url, publishers, concurrency=2)
        with table_of(config) as table, Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
            table.fill(1, event_id="first")
            daemon.wait_until(table.is_done, "the first event to be delivered")
            receiver.requests.clear()
            yield Lane(table, receiver, daemon)


def test_rooms_may_hold_any_text(database_url: str, tmp_path: Path) -> None:
    """What the SDK reads out of the request is what the producer wrote, in room, type and tenant."""
    with lane_of(database_url, tmp_path) as lane:
        lane.table.insert(
            event(event_id=f"any-{number}", room_id=room, event_type=room or "Empty", app_code=room[:32])
            for number, room in enumerate(ROOMS)
        )
        requests = lane.relay()
        assert lane.table.by_status() == {"delivered": len(ROOMS) + 1}
    assert len(requests) == len(ROOMS)
    for request in requests:
        room = ROOMS[int(request.event_id.removeprefix("any-"))]
        attributes = from_http_event(HTTPMessage(request.headers, request.body)).get_attributes()
        assert attributes["type"] == (room or "Empty")
        assert (attributes.get("subject", ""), attributes.get("partitionkey", "")) == (room, room)
        assert attributes.get("appcode", "") == room[:32]


def test_nothing_that_a_producer_writes_becomes_a_header_of_its_own(database_url: str, tmp_path: Path) -> None:
    """CR and LF in everything that becomes a header: one request for each event, with the headers that we gave it."""
    headers = json.dumps({"traceparent": EVIL, "tracestate": EVIL, "baggage": EVIL, "X-Tenant": EVIL, "Evil\r\nX": "1"})
    columns = {"event_type": EVIL[:64], "room_id": EVIL[:64], "app_code": EVIL[:32], "content_type": EVIL[:64]}
    with lane_of(database_url, tmp_path, forward_headers=["x-tenant"]) as lane:
        lane.table.insert(event(event_id=f"a\r\nX-Injected: {n}", headers=headers, **columns) for n in range(5))
        requests = lane.relay()
        assert lane.table.by_status() == {"delivered": 6}
    assert len(requests) == 5
    known = {
        "host", "user-agent", "accept", "content-type", "content-length", "ce-specversion", "ce-id", "ce-source",
        "ce-type", "ce-subject", "ce-partitionkey", "ce-appcode", "ce-time", "traceparent", "tracestate", "baggage",
        "x-tenant",
    }  # fmt: skip
    for request in requests:
        names = [name for name, _ in request.header_lines]
        assert set(names) <= known
        assert len(names) == len(set(names))
        assert unquote(request.headers["ce-type"]) == EVIL[:64]
        assert request.body == b'{"a": 1}'


def test_ids_that_differ_in_case_or_accent_only_are_different_events(database_url: str, tmp_path: Path) -> None:
    """A collation that thinks them equal would drop one of them, in the table, in a claim or in a settle."""
    tenants = ["resume", "Resume", "résumé", "RÉSUMÉ", "re\u0301sume\u0301", "straße", "strasse"]
    names = ["event-a", "Event-A", "EVENT-A"]
    with lane_of(database_url, tmp_path) as lane:
        lane.table.insert(event(event_id=name, app_code=app, room_id=app) for app in tenants for name in names)
        requests = lane.relay()
        assert lane.table.by_status() == {"delivered": len(tenants) * len(names) + 1}
    names_of = ("ce-appcode", "ce-id", "ce-subject")
    found = [tuple(unquote(request.headers[name]) for name in names_of) for request in requests]
    assert sorted(found) == sorted((app, name, app) for app in tenants for name in names)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("no room 🚀🚀 房间".encode(), "HTTP 422: no room 🚀🚀 房间"),
        (b"bad \xff\xfe\xf0\x9f bytes", "HTTP 422: bad"),
        ("x\r\n\0\x1b[31m🚀".encode(), "HTTP 422: x\\r\\n\\x00\\x1b[31m🚀"),
        ("🚀".encode() * 5000, "🚀🚀🚀"),
    ],
    ids=["emoji", "invalid", "control", "long"],
)
def test_an_answers_text_ends_up_in_last_error(database_url: str, tmp_path: Path, body: bytes, shown: str) -> None:
    """G9, G11: valid UTF-8 on one line, at most 200 characters of the answer."""
    with lane_of(database_url, tmp_path) as lane:
        lane.receiver.answer(status=422, body=body)
        lane.table.fill(3)
        lane.relay()
        assert lane.table.by_status() == {"delivered": 1, "failed": 3}
        for row in lane.table.rows("status = 'failed'"):
            error = str(row["last_error"])
            assert shown in error
            assert len(error) <= 220
            assert error.isprintable()
        (line, *_) = lane.daemon.lines("outbox_dead_letter")
        assert line["error"] == lane.table.rows("status = 'failed'")[0]["last_error"]


def test_a_column_that_knows_no_emoji_holds_up_nothing(mysql_url: str, tmp_path: Path) -> None:
    """An older table's last_error is utf8mb3: the text loses what the column cannot hold, the settle is done."""
    with Receiver() as receiver:
        publishers = {"web": {"type": "http", "url": receiver.url}}
        config = write_config(tmp_path / "outbox.yaml", mysql_url, publishers, concurrency=1)
        with table_of(config) as table:
            utf8mb3 = "VARCHAR(512) CHARACTER SET utf8mb3 NULL"
            table.connection.execute(f"ALTER TABLE {table.name} MODIFY last_error {utf8mb3}")
            receiver.answer(event_id="worse", status=500, body="again 🚀 房间")
            receiver.answer(event_id="bad", status=422, body="no 🚀 房间")
            with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
                table.fill(1)
                daemon.wait_until(table.is_done, "the first event to be delivered")
                table.insert([event(event_id="bad"), event(event_id="worse")])
                good = table.fill(20)
                daemon.wait_until(lambda: table.row("worse")["status"] == "retryable", "the second failure")
                daemon.wait_until(lambda: table.by_status()["delivered"] == len(good) + 1, "the good ones")
                daemon.wait_until(lambda: table.row("bad")["status"] == "failed", "the first failure")
                assert "房间" in str(table.row("bad")["last_error"])
                assert "房间" in str(table.row("worse")["last_error"])
                assert table.row("worse")["retry_count"] == 1
                assert daemon.lines("database_unavailable") == daemon.lines("worker_crashed") == []


@pytest.mark.parametrize("headers", ['["a", 1]', '"text"', "7", "[]"])
def test_headers_that_are_no_object_make_a_dead_letter_that_hinders_nobody(
    database_url: str, tmp_path: Path, headers: str
) -> None:
    """G7: thirty of them in a row open no breaker; they say nothing about the receiver. JSON's null is no headers."""
    with lane_of(database_url, tmp_path) as lane:
        lane.table.insert(event(headers=headers) for _ in range(30))
        lane.table.insert(event(headers="null") for _ in range(5))
        lane.table.fill(20)
        requests = lane.relay()
        assert lane.table.by_status() == {"delivered": 26, "failed": 30}
        assert len(requests) == 25
        errors = {str(row["last_error"]) for row in lane.table.rows("status = 'failed'")}
        assert len(errors) == 1
        assert "headers are a JSON" in errors.pop()
        assert lane.daemon.lines("breaker_opened") == []
