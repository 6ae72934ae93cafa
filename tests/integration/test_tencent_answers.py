"""Tencent IM's answers: every code of the table, over the wire, and answers that are none."""

import pytest

from outboxd.event import (
    DELIVERED,
    MISCONFIGURED,
    REJECTED,
    SERVER_ERROR,
    THROTTLED,
    UNAVAILABLE,
    Dead,
    Delivered,
    Outcome,
    Retry,
)
from outboxd.explain.verdict import CONFIGURATION, EVENT, verdict
from tests.services.publishing import publish
from tests.services.tencent import TencentServer
from tests.services.tencent_codes import TABLE, numbers
from tests.services.tencent_rooms import OpensIm, im_settings, room_event
from tests.services.tencent_state import CREATE, IMPORT, SEND, Group

pytest_plugins = ["tests.services.tencent_publishing"]

HELD, COUNTED = "misconfigured, not counted", "server_error, counted"
EXPECTED = {
    "success": "delivered",
    "retry": COUNTED,
    "throttled": "throttled, not counted",
    "wait": "throttled, not counted",
    "import": COUNTED,
    "misconfigured": HELD,
    "permanent": "dead",
}
"""Where the server goes on answering so, whatever is tried."""
SPECIAL = {10008: COUNTED, 70001: HELD, 70052: HELD, 10010: COUNTED}
"""After a new signature; 10010 after the group was created and is still not found."""
CODES = [(number, SPECIAL.get(number) or EXPECTED[kind]) for kind in TABLE for number in numbers(kind)]


def assert_told_rightly(outcome: Outcome) -> None:
    """`outboxd explain` reads the text only, and blames whom the relay blames."""
    if isinstance(outcome, Delivered):
        return
    found = verdict(outcome.error, {"im": im_settings("http://h")})
    assert found.is_final is isinstance(outcome, Dead)
    assert (found.blame == EVENT) is (isinstance(outcome, Dead) or outcome.counted), outcome
    assert (found.blame == CONFIGURATION) is (outcome.reason == MISCONFIGURED), outcome


def told(outcome: Outcome) -> str:
    assert_told_rightly(outcome)
    if isinstance(outcome, Delivered):
        return "delivered"
    if isinstance(outcome, Dead):
        assert outcome.reason == REJECTED
        return "dead"
    return f"{outcome.reason}, {'counted' if outcome.counted else 'not counted'}"


@pytest.mark.parametrize(("number", "expected"), CODES)
def test_every_code_leads_to_its_outcome_for_a_message(
    server: TencentServer, opens_im: OpensIm, number: int, expected: str
) -> None:
    """G6. The error names the call, the code, and what Tencent says."""
    server.answer(SEND, number, info="what tencent says")
    outcome = publish(opens_im(connections=1), room_event())
    assert told(outcome) == expected
    if not isinstance(outcome, Delivered):
        assert f"{SEND}: {number}" in outcome.error
        assert number == 10010 or "what tencent says" in outcome.error


@pytest.mark.parametrize(("number", "expected"), CODES)
def test_every_code_leads_to_its_outcome_for_a_new_room(
    server: TencentServer, opens_im: OpensIm, number: int, expected: str
) -> None:
    """10010 means nothing that could be done here; after 10021 get_group_info does not find the group."""
    server.answer(CREATE, number)
    outcome = publish(opens_im(connections=1), room_event("RoomCreated"))
    assert told(outcome) == {10010: "dead", 10021: COUNTED}.get(number, expected)


@pytest.mark.parametrize("number", [70001, 70052, 10008])
def test_a_signature_that_is_refused_once_is_made_anew(server: TencentServer, opens_im: OpensIm, number: int) -> None:
    server.answer(SEND, number, times=1)
    server.apps[1400000001].groups["room-1"] = Group("ChatRoom", "", "room-1")
    assert publish(opens_im(), room_event()) is DELIVERED
    assert server.commands() == [SEND, SEND]


@pytest.mark.parametrize("number", numbers("import"))
def test_an_account_that_is_missing_once_is_imported(server: TencentServer, opens_im: OpensIm, number: int) -> None:
    server.answer(SEND, number, times=1)
    server.apps[1400000001].groups["room-1"] = Group("ChatRoom", "", "room-1")
    assert publish(opens_im(), room_event()) is DELIVERED
    assert server.commands() == [SEND, IMPORT, SEND]
    assert server.asked[1].body == {"UserID": "administrator"}


def test_after_too_many_wrong_signatures_a_minute_is_waited(server: TencentServer, opens_im: OpensIm) -> None:
    server.answer(SEND, 70050)
    outcome = publish(opens_im(), room_event())
    assert isinstance(outcome, Retry)
    assert outcome.retry_after_s == 60.0


@pytest.mark.parametrize(
    ("status", "reason", "counted"),
    [
        (500, SERVER_ERROR, True),
        (502, UNAVAILABLE, False),
        (503, UNAVAILABLE, False),
        (504, UNAVAILABLE, False),
        (429, THROTTLED, False),
        (400, SERVER_ERROR, True),
        (401, MISCONFIGURED, False),
        (403, MISCONFIGURED, False),
        (404, MISCONFIGURED, False),
        (302, MISCONFIGURED, False),
    ],
)
def test_what_is_no_answer_of_tencent_is_taken_as_from_any_web_server(
    server: TencentServer, opens_im: OpensIm, status: int, reason: str, counted: bool
) -> None:
    """G6: something between here and there answers. Never a dead letter."""
    server.behave(SEND, status=status, body="<html>gateway", location="http://elsewhere/" if status == 302 else None)
    outcome = publish(opens_im(), room_event())
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == (reason, counted)
    assert f"HTTP {status}: <html>gateway" in outcome.error
    assert "authorization_file" not in outcome.error
    assert_told_rightly(outcome)
    assert server.commands() == [SEND]


def test_a_pause_that_is_asked_for_is_made(server: TencentServer, opens_im: OpensIm) -> None:
    server.behave(SEND, status=429, retry_after="7")
    outcome = publish(opens_im(), room_event())
    assert isinstance(outcome, Retry)
    assert outcome.retry_after_s == 7


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no json",
        b"[]",
        b"{}",
        b'{"ErrorCode": "0"}',
        b'{"ErrorCode": null}',
        b'{"ActionStatus": "OK"}',
        b"\xff\xfe",
        b"[" * 10_000,
        b'{"ErrorCode": 0, "x": "' + b"y" * 100_000,
        b'{"ActionStatus": "FAIL", "ErrorCode": 0}',
    ],
    ids=["empty", "text", "list", "no code", "text code", "null", "status", "bytes", "deep", "long", "failed without"],
)
def test_a_body_that_says_nothing_is_no_success(server: TencentServer, opens_im: OpensIm, body: bytes) -> None:
    """G1: what is not understood was not accepted, as far as anyone knows."""
    server.behave(SEND, status=200, body=body)
    outcome = publish(opens_im(), room_event())
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == (SERVER_ERROR, True)
    assert len(outcome.error) <= 400
    assert_told_rightly(outcome)


def test_what_tencent_adds_to_an_answer_is_passed_over(server: TencentServer, opens_im: OpensIm) -> None:
    """Its documents say that members may be added at any time."""
    body = b'{"ActionStatus":"OK","ErrorInfo":null,"ErrorCode":0,"MsgSeq":1,"New":{"x":[1,{}]},"RequestId":"r"}'
    server.behave(SEND, status=200, body=body)
    assert publish(opens_im(), room_event()) is DELIVERED
