"""What a stored error text is told to mean; the texts are the ones that the relay writes.

tests/integration/test_cli_explain_http.py has the same told of a real receiver's answers.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outboxd.config.schema import Console, Http, Null, PublisherSettings, PythonCallable
from outboxd.event import REASONS, Dead, Event, Retry
from outboxd.explain.verdict import CONFIGURATION, EVENT, OPERATOR, RECEIVER, WORKER, verdict
from outboxd.publishers.http_answer import answered
from outboxd.relay import policy

WEBHOOK: dict[str, PublisherSettings] = {"webhook": Http(name="webhook", url="http://h/")}
BOTH: dict[str, PublisherSettings] = {**WEBHOOK, "mine": PythonCallable(name="mine", target="shop:publish")}
EVERY_STATUS = range(300, 600)


def event() -> Event:
    return Event(1, "e", "T", "r", "", b"", "", None, 9, 0, "", None, "room_outbox")


@pytest.mark.parametrize("permanent", [frozenset({400, 413, 422}), frozenset({409}), frozenset[int]()])
def test_every_status_is_blamed_as_the_relay_blames_it(permanent: frozenset[int]) -> None:
    """G6: two places know what a status means; they may never differ."""
    publishers: dict[str, PublisherSettings] = {"w": Http(name="w", url="http://h/", permanent_statuses=permanent)}
    for status in EVERY_STATUS:
        outcome = answered(status, b"why", [], permanent, 0.0)
        assert isinstance(outcome, Retry | Dead)
        told = verdict(outcome.error, publishers)
        assert told.is_final is isinstance(outcome, Dead)
        assert (told.blame == EVENT) is (isinstance(outcome, Dead) or outcome.counted), status
        assert (told.blame == CONFIGURATION) is (outcome.reason == "misconfigured"), status
        assert told.publisher == "w"


@pytest.mark.parametrize(
    ("error", "blame", "part"),
    [
        ("TLS failed: SSL certificate problem: self-signed", RECEIVER, "no secure connection to webhook"),
        ("Could not resolve host: nowhere", RECEIVER, "the host name of webhook is not known"),
        ("Failed to connect to h port 80 after 0 ms: Could not connect to server", RECEIVER, "never reached webhook"),
        ("the request was not sent: Connection timed out", RECEIVER, "never reached webhook"),
        ("no complete answer in time: Operation timed out", EVENT, "did not answer in time"),
        ("the kept-alive connection was closed without an answer", EVENT, "without an answer"),
        ("the connection ended before the answer did: Empty reply", EVENT, "without an answer"),
        ("the answer cannot be read: Received HTTP/0.9", EVENT, "no HTTP"),
        ("the answer's headers are too long", EVENT, "outboxd gave up on webhook, since its answer's headers"),
        ("waiting for webhook, which is failing", RECEIVER, "webhook is failing, so it was not tried"),
        ("waiting for webhook, which is slow", RECEIVER, "webhook is slow, so it was not tried"),
        ("waiting for webhook, which asked for a pause of 7 s", RECEIVER, "asked for a pause of 7 s"),
        ("held, since the receiver refuses everything: HTTP 422", RECEIVER, "looks like its own fault"),
        ("not sent: the worker was held up until the deadline had passed", WORKER, "its turn did not come"),
        ("killed by root@host: HTTP 500", OPERATOR, "a person ended it"),
        ("headers are a JSON list; the producer must write an object", EVENT, "no request can be made of it"),
        ("something never seen", EVENT, "publishing it failed"),
    ],
)
def test_every_text_has_its_meaning(error: str, blame: str, part: str) -> None:
    told = verdict(error, WEBHOOK)
    assert (told.blame, part in told.says) == (blame, True), told


def test_the_ends_that_the_relay_itself_decides_are_known() -> None:
    """Their texts are made here as there."""
    settlement, _ = policy.limit_exceeded(event(), 1)
    assert settlement.last_error is not None
    assert verdict(settlement.last_error, WEBHOOK).blame == WORKER
    settlement, _ = policy.oversize(event(), 1, 2000, 1000)
    assert settlement.last_error is not None
    assert "larger than the lane allows" in verdict(settlement.last_error, WEBHOOK).says


def test_with_several_publishers_it_is_told_which_one() -> None:
    """Each text begins with a name then; one that merely looks like it does not count."""
    assert verdict("webhook: HTTP 503", BOTH).publisher == "webhook"
    assert verdict("mine: ValueError: no", BOTH).says == "shop:publish raised an exception"
    assert verdict("mine: webhook: HTTP 500", BOTH).publisher == "mine"
    assert verdict("ValueError: webhook", BOTH).publisher == ""
    assert verdict("HTTP 401", WEBHOOK).todo == "check `publishers.webhook.authorization_file`"


def test_other_publishers_failures_are_theirs() -> None:
    assert verdict("ValueError: no", {"mine": BOTH["mine"]}).blame == EVENT
    assert verdict("standard output cannot be written: Broken pipe", {"c": Console(name="c")}).blame == RECEIVER
    assert verdict("?", {"n": Null(name="n")}).blame == EVENT


@given(st.text(max_size=600))
def test_any_text_can_be_told(error: str) -> None:
    """An error text may come from a receiver, or from an older relay."""
    for publishers in (WEBHOOK, BOTH, {}):
        told = verdict(error, publishers)
        assert told.says
        assert told.blame in {EVENT, RECEIVER, CONFIGURATION, WORKER, OPERATOR}
    assert REASONS
