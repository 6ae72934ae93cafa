"""What `outboxd explain` and `dead show` tell of one row; tests/integration/test_cli_explain.py has the rest."""

import pytest

from outboxd.config.schema import ActivityGrpc, Lane, PublisherSettings, RocketLaunch
from outboxd.explain.story import DEAD, RETRYING, Scene, Story, tell
from outboxd.store.desk_find import Found
from outboxd.store.desk_look import Around

PUBLISHERS: dict[str, PublisherSettings] = {
    "rocket_launch": RocketLaunch(name="rocket_launch", events=()),
    "activity": ActivityGrpc(name="activity", target="h:1"),
}
NOTHING_ELSE = Around(
    paused=False, paused_by="", ahead=0, holders={}, last_delivery_ms=0, last_failure_ms=0, last_failure=""
)
USED = "it uses up an attempt"


def story(status: str, error: str, retry_count: int) -> Story:
    """Of a row that stands so in the table."""
    event = Found(
        id=1, app_code="app", event_id="e1", event_type="RoomRocketIgnited", room_id="r", content_type="", headers=None,
        status=status, worker_id="", claim_token=1, lock_until_ms=0, retry_count=retry_count, next_retry_at_ms=2000,
        published_to="", last_error=error, created_at_ms=1000, updated_at_ms=1000, delivered_at_ms=0, due_at_ms=2000,
        envelope_bytes=2, now_ms=1500,
    )  # fmt: skip
    return tell(Scene(event, Lane(name="room_outbox"), NOTHING_ELSE, PUBLISHERS))


@pytest.mark.parametrize(
    "error",
    [
        "activity: UNAVAILABLE: Socket closed",
        "activity: no complete answer in time",
        "rocket_launch: something that nobody knows",
        "words of an older relay",
    ],
)
def test_while_nothing_was_counted_no_attempt_is_said_to_be_used(error: str) -> None:
    """G6: a failure during an outage is not counted, whatever its text says."""
    told = story("retryable", error, 0)
    said = " ".join(told.details)
    assert (told.state, told.blame) == (RETRYING, "receiver")
    assert "No attempt was used: this is blamed on the receiver or its configuration." in said
    assert USED not in said
    counted = story("retryable", error, 1)
    assert (counted.blame, USED in " ".join(counted.details)) == ("event", True)


@pytest.mark.parametrize(
    "error",
    [
        "rocket_launch: the envelope's body needs a rocket_id and a launch_at_ms above 0",
        "activity: envelope is no EventEnvelope: Expected `object`, got `array`",
        "rocket_launch: the message has 5000000 bytes, RocketMQ takes 4194304 at the most",
        "headers are no JSON object: Expected `object`, got `array`",
        "envelope of 2000 bytes is larger than max_event_bytes (1000)",
    ],
)
def test_what_no_request_can_be_made_of_is_not_to_be_replayed_as_it_is(error: str) -> None:
    """It would die again at once."""
    told = story("failed", error, 1)
    assert told.state == DEAD
    mend, replay, purge = told.todo
    assert "purge" in mend
    assert replay == "not before that, since it would die again: `outboxd dead replay e1 --lane room_outbox --app app`"
    assert purge == "or delete it for good: `outboxd dead purge e1 --lane room_outbox --app app`"


def test_what_a_receiver_refused_may_be_replayed() -> None:
    """The receiver can be corrected."""
    told = story("failed", "activity: rejected: INVALID_ARGUMENT: no such room", 1)
    assert told.todo[-1] == "publish it again: `outboxd dead replay e1 --lane room_outbox --app app`"
