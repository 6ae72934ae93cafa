"""A worker's numbers reach the files with every settle; a folder that cannot be written costs one line in the log."""

import logging
from pathlib import Path

import pytest

from outboxd import log
from outboxd.config.schema import Breaker as Settings
from outboxd.event import CONNECT, DELIVERED, PARKED, REJECTED, Dead, Delivered, Retry
from outboxd.publishers.null import NullPublisher
from outboxd.publishers.route import Route
from outboxd.relay.breaker import Breaker
from outboxd.relay.meter import TRY_AGAIN_S, WRITE_EVERY_S, Meter
from tests.unit.test_series import samples


def route(name: str = "web") -> Route:
    """The way to a publisher that accepts everything."""
    return Route(name, NullPublisher(), Breaker(Settings()), lambda _: True, 0.0, 60.0)


def test_outcomes_are_counted_by_publisher_and_reason(tmp_path: Path) -> None:
    """What was not tried is no failure."""
    web, queue = route("web"), route("queue")
    for outcome in (Delivered(("web",)), Retry(CONNECT, "refused"), Retry(CONNECT, "refused"), Dead(REJECTED, "no")):
        web.note(outcome, 0.0)
    queue.note(Retry(PARKED, "waiting", counted=False), 0.0)
    meter = Meter(str(tmp_path), 0, "room_outbox", (web, queue))
    meter.write(0.0)
    found = {name: value for name, value in samples(tmp_path).items() if "_total" in name}
    assert found == {
        "outboxd_publish_success_total{lane=room_outbox,publisher=web}": 1,
        "outboxd_publish_success_total{lane=room_outbox,publisher=queue}": 0,
        "outboxd_publish_failure_total{lane=room_outbox,publisher=web,reason=connect}": 2,
        "outboxd_publish_failure_total{lane=room_outbox,publisher=web,reason=rejected}": 1,
    }


def test_numbers_are_written_after_a_settle_and_about_once_a_second(tmp_path: Path) -> None:
    """A worker that is killed loses what it counted since its last settle, no more."""
    meter = Meter(str(tmp_path), 0, "room_outbox", ())
    meter.write(0.0)
    for now_s, settled, seen in ((0.1, False, 0), (0.2, True, 2), (0.3, False, 2), (0.3 + WRITE_EVERY_S, False, 4)):
        meter.claims.observe(0.1)
        meter.write(now_s, settled=settled)
        assert samples(tmp_path)["outboxd_claim_latency_seconds_count{lane=room_outbox}"] == seen


def test_a_folder_that_cannot_be_written_is_said_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """G9: one line when it begins and one when it is over, whatever is counted meanwhile; nothing counted is lost."""
    folder = tmp_path / "metrics"
    web = route()
    meter = Meter(str(folder), 0, "room_outbox", (web,))
    with caplog.at_level(logging.INFO, logger="outboxd"):
        for step in range(100):
            web.note(DELIVERED, 0.0)
            meter.write(step * TRY_AGAIN_S / 10, settled=True)
        assert [record.msg for record in caplog.records] == [log.METRICS_UNAVAILABLE]
        folder.mkdir()
        meter.write(100 * TRY_AGAIN_S, settled=True)
    assert [record.msg for record in caplog.records] == [log.METRICS_UNAVAILABLE, log.METRICS_AVAILABLE]
    assert samples(folder)["outboxd_publish_success_total{lane=room_outbox,publisher=web}"] == 100


def test_without_a_folder_nothing_is_written(tmp_path: Path) -> None:
    meter = Meter(None, 0, "room_outbox", (route(),))
    meter.write(0.0, settled=True)
    assert list(tmp_path.iterdir()) == []
