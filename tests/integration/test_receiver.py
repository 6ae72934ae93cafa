"""The tests' own receiver, where it is a process: other tests rely on what it records."""

import signal
from pathlib import Path

from outboxd.event import DELIVERED, Dead, Retry
from tests.services.publishing import Opens, make_event, publish, publish_all
from tests.services.receiver_process import start_receiver

pytest_plugins = ["tests.services.http_publishing"]


def test_what_it_answered_is_in_its_log_although_it_was_killed(opens: Opens, tmp_path: Path) -> None:
    """Tests compare this log with what a lane says was delivered."""
    receiver = start_receiver(tmp_path)
    events = [make_event() for _ in range(500)]
    publish_all(opens(url=receiver.url), events)
    receiver.stop(signal.SIGKILL)
    assert sorted(receiver.event_ids()) == sorted(event.event_id for event in events)
    refused = publish(opens(url=receiver.url), make_event())
    assert isinstance(refused, Retry)
    again = start_receiver(tmp_path, port=receiver.port)
    assert publish(opens(url=again.url), make_event()) is DELIVERED
    assert len(again.event_ids()) == 501
    again.stop()


def test_rules_say_how_it_answers(opens: Opens, tmp_path: Path) -> None:
    """By path, by event, for so many times."""
    receiver = start_receiver(
        tmp_path,
        {"path": "/bad", "status": 422, "body": "no"},
        {"event_id": "poison", "status": 500},
        {"event_id": "flaky", "status": 503, "times": 1},
    )
    publisher = opens(url=receiver.url)
    assert publish(publisher, make_event()) is DELIVERED
    assert isinstance(publish(publisher, make_event(event_id="poison")), Retry)
    assert isinstance(publish(publisher, make_event(event_id="flaky")), Retry)
    assert publish(publisher, make_event(event_id="flaky")) is DELIVERED
    assert publish(opens(url=receiver.url.replace("/events", "/bad")), make_event()) == Dead("rejected", "HTTP 422: no")
    receiver.stop()
