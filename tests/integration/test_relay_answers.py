"""What becomes of an event by what the receiver answers: the row as it stands afterwards."""

import email.utils
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.services.daemon import Daemon, write_config
from tests.services.lanes import Table, event, lanes_of
from tests.services.receiver import Receiver

RETRY_AFTER_S = 20
INITIAL_BACKOFF_S = 5.0
MAX_BACKOFF_S = 30.0


@dataclass(frozen=True)
class Answer:
    """One answer and the row that it leaves. holds: the publisher is not asked again before that many seconds."""

    behaviour: dict[str, Any]
    status: str
    counted: bool
    shown: str
    least_s: float = INITIAL_BACKOFF_S * 0.9
    most_s: float = INITIAL_BACKOFF_S * 1.5
    holds: bool = False

    @property
    def dead(self) -> bool:
        """Is it the end of the event?"""
        return self.status == "failed"


def held(status: int, retry_after: str, shown: str, least_s: float = RETRY_AFTER_S - 2) -> Answer:
    """The publisher's fault, and it asks for a pause."""
    return Answer(
        {"status": status, "retry_after": retry_after}, "retryable", False, shown, least_s, MAX_BACKOFF_S, holds=True
    )


def in_s(seconds: float) -> str:
    """A moment as an HTTP date."""
    return email.utils.formatdate(time.time() + seconds, usegmt=True)


A_DATE = "a date"
"""Stands for a date that is known only when the test runs."""

ANSWERS: dict[str, Answer] = {
    "lane_400": Answer({"status": 400, "body": "no such field"}, "failed", True, "HTTP 400: no such field"),
    "lane_413": Answer({"status": 413}, "failed", True, "HTTP 413"),
    "lane_422": Answer({"status": 422, "body": "no"}, "failed", True, "HTTP 422: no"),
    "lane_401": Answer({"status": 401}, "retryable", False, "HTTP 401 (check authorization_file)"),
    "lane_302": Answer({"status": 302, "location": "/elsewhere"}, "retryable", False, "redirects are not followed"),
    "lane_500": Answer({"status": 500, "body": "boom"}, "retryable", True, "HTTP 500: boom", most_s=5.5),
    "lane_502": Answer({"status": 502}, "retryable", False, "HTTP 502"),
    "lane_503": Answer({"status": 503}, "retryable", False, "HTTP 503"),
    "lane_503_later": held(503, str(RETRY_AFTER_S), "HTTP 503"),
    "lane_429_seconds": held(429, str(RETRY_AFTER_S), "HTTP 429"),
    "lane_429_date": held(429, A_DATE, "HTTP 429", MAX_BACKOFF_S - 3),
    "lane_429_for_ever": held(429, "99999999", "HTTP 429", MAX_BACKOFF_S - 1),
    "lane_200": Answer({"status": 200, "body": "fine"}, "delivered", False, ""),
    "lane_hangs": Answer({"hang": True}, "retryable", True, "no complete answer in time", most_s=5.5),
    "lane_cut": Answer({"close": "before_answer"}, "retryable", True, "", most_s=5.5),
}


@contextmanager
def relayed(url: str, tmp_path: Path) -> Iterator[tuple[Receiver, dict[str, Table], Daemon]]:
    """A lane for each answer, all at once: an event that is delivered, then one that meets the answer."""
    with Receiver() as receiver:
        for name, answer in ANSWERS.items():
            behaviour = dict(answer.behaviour)
            if behaviour.get("retry_after") == A_DATE:
                behaviour["retry_after"] = in_s(90.0)
            receiver.answer(path=f"/{name}", event_id="bad", **behaviour)
        base = receiver.url.rpartition("/")[0]
        publishers = {name: {"type": "http", "url": f"{base}/{name}"} for name in ANSWERS}
        config = write_config(
            tmp_path / "outbox.yaml",
            url,
            publishers,
            lanes={name: {"direct": [name]} for name in ANSWERS},
            direct=[],
            concurrency=1,
            publish_timeout="1s",
            initial_backoff=f"{INITIAL_BACKOFF_S:g}s",
            max_backoff=f"{MAX_BACKOFF_S:g}s",
        )
        with lanes_of(config) as tables, Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
            for table in tables.values():
                table.insert([event(event_id="good")])
            daemon.wait_until(lambda: all(table.is_done() for table in tables.values()), "the first of each lane")
            for table in tables.values():
                table.insert([event(event_id="bad")])
            daemon.wait_until(lambda: all(_is_settled(table) for table in tables.values()), "the answers")
            yield receiver, tables, daemon


def _is_settled(table: Table) -> bool:
    row = table.row("bad")
    return row["status"] not in ("pending", "delivering")


def test_every_answer_leaves_the_row_that_it_should(database_url: str, tmp_path: Path) -> None:
    """G6: whose fault it was, whether it counts, when it is tried again; and G7: the next event goes on as usual."""
    with relayed(database_url, tmp_path) as (receiver, tables, daemon):
        wrong = {name: found for name in ANSWERS if (found := _differences(ANSWERS[name], tables[name]))}
        assert wrong == {}
        for table in tables.values():
            table.insert([event(event_id="next")])
        usual = [tables[name] for name, answer in ANSWERS.items() if not answer.holds]
        daemon.wait_until(lambda: all(table.row("next")["status"] == "delivered" for table in usual), "the next ones")
        paused = [tables[name] for name, answer in ANSWERS.items() if answer.holds]
        assert {table.row("next")["status"] for table in paused} <= {"pending", "retryable"}
        assert {(table.row("next")["retry_count"]) for table in paused} == {0}
        asked = [request.path for request in receiver.requests if request.event_id == "bad"]
    assert sorted(asked) == sorted(f"/{name}" for name in ANSWERS), "each once, and no redirect was followed"


def _differences(answer: Answer, table: Table) -> dict[str, object]:
    row = table.row("bad")
    found: dict[str, object] = {}
    expected: dict[str, object] = {"status": answer.status, "retry_count": int(answer.counted)}
    expected["published_to"] = f"!{table.name}" if answer.dead else None
    found |= {name: row[name] for name, value in expected.items() if row[name] != value}
    error = row["last_error"]
    if answer.status == "delivered":
        return found if error is None else {**found, "last_error": error}
    if answer.shown not in str(error):
        found["last_error"] = error
    if not answer.dead:
        rests_s = (int(str(row["next_retry_at_ms"])) - int(str(row["updated_at_ms"]))) / 1000
        if not answer.least_s <= rests_s <= answer.most_s:
            found["rests_s"] = rests_s
    return found


def test_poison_ends_as_a_dead_letter_and_hinders_nobody(database_url: str, tmp_path: Path) -> None:
    """G7: one bad event among 300 good ones: tried max_retry_count times, the breaker stays closed throughout."""
    with Receiver() as receiver:
        receiver.answer(event_id="poison", status=500, body="boom")
        config = write_config(
            tmp_path / "outbox.yaml",
            database_url,
            {"web": {"type": "http", "url": receiver.url}},
            concurrency=2,
            max_retry_count=4,
            initial_backoff="50ms",
            max_backoff="100ms",
        )
        with lanes_of(config) as tables, Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
            (table,) = tables.values()
            table.fill(100)
            table.insert([event(event_id="poison")])
            table.fill(200)
            daemon.wait_until(table.is_done, "every event to come to an end")
            row = table.row("poison")
            assert (row["status"], row["retry_count"], row["last_error"]) == ("failed", 4, "HTTP 500: boom")
            assert table.by_status() == {"delivered": 300, "failed": 1}
            assert daemon.lines("breaker_opened") == []
            tried = receiver.event_ids().count("poison")
            assert 4 <= tried <= 6, "four counted attempts, and an uncounted one for each process that began with it"


@pytest.mark.parametrize(("database", "outage"), [("mysql_url", "refused"), ("sqlite_url", "500")])
def test_an_outage_with_restarts_in_it_buries_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, database: str, outage: str
) -> None:
    """G6: with three attempts allowed and many more made, everything is delivered when the receiver is back."""
    with Receiver() as receiver:
        write = {"breaker": {"initial_probe": "20ms", "max_probe": "50ms"}, "type": "http", "url": receiver.url}
        config = write_config(
            tmp_path / "outbox.yaml",
            request.getfixturevalue(database),
            {"web": write},
            concurrency=1,
            max_retry_count=3,
            initial_backoff="20ms",
            max_backoff="50ms",
        )
        with lanes_of(config) as tables:
            (table,) = tables.values()
            ids = table.fill(30)
            if outage == "refused":
                receiver.refuse()
            else:
                receiver.answer(status=500)
            for _ in range(4):
                with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
                    daemon.wait_for("breaker_opened")
                    until_s = time.monotonic() + 0.7
                    daemon.wait_until(lambda at=until_s: time.monotonic() > at, "probes")  # type: ignore[misc]
                    daemon.drain(3.0)
            assert table.by_status().keys() <= {"pending", "retryable"}
            assert max(int(str(row["retry_count"])) for row in table.rows()) <= 1
            before = len(receiver.requests)
            receiver.rules.clear()
            if outage == "refused":
                receiver.listen_again()
            with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
                daemon.wait_until(table.is_done, "everything to be delivered")
            assert table.by_status() == {"delivered": 30}
        assert sorted(receiver.event_ids()[before:]) == sorted(ids), "and each of them once"
