"""The way of an event through its calls: what is asked after each answer."""

import pytest

from outboxd.event import DELIVERED, MISCONFIGURED, REJECTED, SERVER_ERROR, Dead, Event, Outcome, Retry
from outboxd.tencent.course import Answer, GroupInfo, course_of
from outboxd.tencent.requests import Call, errand_of
from tests.services.tencent_rooms import im_settings, room_event

SEND, CREATE, INFO, IMPORT = "send_group_msg", "create_group", "get_group_info", "account_import"
DELETE, BAN, MUTE = "delete_group_member", "ban_group_member", "forbid_send_msg"
KICK = room_event("RoomUserKicked", {"user_id": "u-1"})


def walk(event: Event, *answers: int | Answer, **changes: object) -> tuple[list[str], Outcome]:
    """Names of the calls made (a new signature is marked by '!'), and the outcome. What is not given is a success."""
    settings = im_settings("http://h", **changes)
    errand = errand_of(event, settings, "administrator", True)
    course = course_of(errand, settings, "administrator")
    calls: list[Call] = []
    left = [answer if isinstance(answer, Answer) else Answer(answer, "text") for answer in answers]
    try:
        calls.append(next(course))
        while True:
            calls.append(course.send(left.pop(0) if left else Answer(0)))
    except StopIteration as end:
        assert left == [], "answers that nobody asked for"
        outcome: Outcome = end.value
        return [("!" if call.is_resigned else "") + call.name for call in calls], outcome


def group(owner: str = "", kind: str = "ChatRoom", code: int = 0) -> Answer:
    return Answer(0, groups=(GroupInfo(kind, owner, code),))


@pytest.mark.parametrize("code", [0, 10025, 10024])
def test_a_group_that_is_there_is_as_good_as_a_new_one(code: int) -> None:
    """G1: RoomCreated may come twice."""
    assert walk(room_event("RoomCreated"), code) == ([CREATE], DELIVERED)


@pytest.mark.parametrize(
    ("found", "changes"),
    [
        (group(), {}),
        (group("administrator"), {}),
        (group("owner-1"), {"group_owner": "owner-1"}),
        (group(kind="Meeting"), {}),
        (group(kind="Work"), {"group_type": "Private"}),
    ],
)
def test_a_group_of_another_is_taken_if_it_is_what_was_wanted(found: Answer, changes: dict[str, object]) -> None:
    assert walk(room_event("RoomCreated"), 10021, found, **changes) == ([CREATE, INFO], DELIVERED)


@pytest.mark.parametrize(
    ("found", "changes"),
    [
        (group("stranger"), {}),
        (group(kind="Public"), {}),
        (group(), {"group_owner": "owner-1"}),
        (group("administrator"), {"group_owner": "owner-1"}),
    ],
)
def test_a_group_of_another_that_is_not_what_was_wanted_is_a_dead_letter(
    found: Answer, changes: dict[str, object]
) -> None:
    names, outcome = walk(room_event("RoomCreated"), 10021, found, **changes)
    assert names == [CREATE, INFO]
    assert isinstance(outcome, Dead)
    assert (outcome.reason, "in use by another owner" in outcome.error) == (REJECTED, True)


@pytest.mark.parametrize("found", [Answer(0), group(code=10010), Answer(10002)])
def test_a_group_of_another_that_cannot_be_looked_at_is_retried(found: Answer) -> None:
    names, outcome = walk(room_event("RoomCreated"), 10021, found)
    assert names == [CREATE, INFO]
    assert isinstance(outcome, Retry)
    assert outcome.reason == SERVER_ERROR


@pytest.mark.parametrize("code", [20003, 70107, 90012, 90048, 10019])
def test_a_missing_account_is_imported_once(code: int) -> None:
    assert walk(room_event(), code) == ([SEND, IMPORT, SEND], DELIVERED)
    names, outcome = walk(room_event(), code, 0, code)
    assert names == [SEND, IMPORT, SEND]
    assert outcome == Retry(SERVER_ERROR, f"{SEND}: {code} (no such account) text")


def test_an_account_that_cannot_be_imported_ends_it() -> None:
    names, outcome = walk(room_event(), 70107, 70398)
    assert names == [SEND, IMPORT]
    assert isinstance(outcome, Dead)
    assert IMPORT in outcome.error


@pytest.mark.parametrize("code", [70001, 70052, 10008])
def test_a_refused_signature_is_made_anew_once(code: int) -> None:
    assert walk(room_event(), code) == ([SEND, "!" + SEND], DELIVERED)
    names, outcome = walk(room_event(), code, code)
    assert names == [SEND, "!" + SEND]
    assert isinstance(outcome, Retry)
    assert outcome.counted is (code == 10008)


def test_a_message_without_a_group_makes_the_group_first() -> None:
    """In a lane without order it may come before its RoomCreated."""
    assert walk(room_event(), 10010) == ([SEND, CREATE, SEND], DELIVERED)
    assert walk(room_event(), 10010, 10025) == ([SEND, CREATE, SEND], DELIVERED)


def test_a_group_that_is_not_found_though_it_was_created_is_retried_and_counted() -> None:
    names, outcome = walk(room_event(), 10010, 0, 10010)
    assert names == [SEND, CREATE, SEND]
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == (SERVER_ERROR, True)


def test_a_group_that_cannot_be_created_decides_over_its_message() -> None:
    names, outcome = walk(room_event(), 10010, 10007)
    assert names == [SEND, CREATE]
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == (MISCONFIGURED, False)


def test_who_is_kicked_is_out_before_the_message_says_so() -> None:
    assert walk(KICK) == ([DELETE, SEND], DELIVERED)


@pytest.mark.parametrize("code", [10002, 10007, 10003])
def test_a_kick_that_fails_is_not_told(code: int) -> None:
    names, outcome = walk(KICK, code)
    assert names == [DELETE]
    assert outcome != DELIVERED


def test_where_the_group_has_no_members_the_user_is_banned() -> None:
    assert walk(KICK, 10004) == ([DELETE, BAN, SEND], DELIVERED)


@pytest.mark.parametrize("code", [10004, 10007, 10026, 10003])
def test_where_nobody_can_be_banned_the_user_is_muted(code: int) -> None:
    assert walk(KICK, 10004, code) == ([DELETE, BAN, MUTE, SEND], DELIVERED)
    names, outcome = walk(KICK, 10004, code, 10004)
    assert names == [DELETE, BAN, MUTE]
    assert isinstance(outcome, Dead)


def test_from_a_group_that_is_gone_nobody_needs_to_be_taken() -> None:
    assert walk(KICK, 10010) == ([DELETE, SEND], DELIVERED)
    assert walk(KICK, 10004, 10010) == ([DELETE, BAN, SEND], DELIVERED)


def test_a_kicked_user_without_an_account_gets_one_so_that_the_kick_can_be_made() -> None:
    assert walk(KICK, 10019) == ([DELETE, IMPORT, DELETE, SEND], DELIVERED)


def test_what_tencent_says_is_clipped() -> None:
    """G9."""
    _, outcome = walk(room_event(), Answer(10002, "x" * 10_000))
    assert isinstance(outcome, Retry)
    assert len(outcome.error) == 400
