"""Tencent IM's error codes: each of the published table, by what becomes of the event."""

import pytest

from outboxd.event import MISCONFIGURED, REJECTED, SERVER_ERROR, THROTTLED, Dead, Retry
from outboxd.tencent.codes import CODES, Kind, code_of, failure_of
from tests.services.tencent_codes import TABLE, numbers

HELD_AFTER_SIGNING = (70001, 70052)


@pytest.mark.parametrize("kind", TABLE)
def test_every_code_is_of_its_kind(kind: str) -> None:
    assert {number: code_of(number).kind for number in numbers(kind)} == dict.fromkeys(numbers(kind), Kind(kind))


def test_no_code_is_of_two_kinds() -> None:
    listed = [number for kind in TABLE for number in numbers(kind)]
    assert len(listed) == len(set(listed))
    assert set(CODES) <= set(listed), "a code that no table tells of"


@pytest.mark.parametrize("number", [1, 9999, 10099, 60001, 60022, 70017, 90011, 120000, 130001, -1])
def test_a_code_that_nobody_knows_is_retried_and_counted(number: int) -> None:
    """G6: it may pass, and if it does not, the event ends as a dead letter and not never."""
    assert failure_of(number, "text") == Retry(SERVER_ERROR, "text")


@pytest.mark.parametrize("number", numbers("misconfigured"))
def test_a_refusal_of_the_caller_is_held_and_never_dead(number: int) -> None:
    """G6: after an expired package, a wrong key or a lost right nothing healthy is in `failed`."""
    assert failure_of(number, "text") == Retry(MISCONFIGURED, "text", counted=False)


@pytest.mark.parametrize("number", numbers("permanent"))
def test_what_can_never_be_accepted_is_a_dead_letter(number: int) -> None:
    assert failure_of(number, "text") == Dead(REJECTED, "text")


@pytest.mark.parametrize("number", numbers("throttled"))
def test_being_asked_to_slow_down_costs_no_attempt(number: int) -> None:
    """G6."""
    assert failure_of(number, "text") == Retry(THROTTLED, "text", counted=False)


def test_too_many_wrong_signatures_hold_the_publisher_for_a_minute() -> None:
    assert failure_of(70050, "text") == Retry(THROTTLED, "text", counted=False, retry_after_s=60.0)


@pytest.mark.parametrize("number", numbers("retry") + numbers("import"))
def test_what_failed_at_tencent_is_retried_and_counted(number: int) -> None:
    assert failure_of(number, "text") == Retry(SERVER_ERROR, "text")


@pytest.mark.parametrize("number", numbers("success"))
def test_what_is_done_already_is_a_success(number: int) -> None:
    assert failure_of(number, "text") is None


@pytest.mark.parametrize("number", numbers("re-sign"))
def test_a_new_signature_that_is_refused_too_is_no_fault_of_the_event_unless_it_may_be(number: int) -> None:
    """10008 may mean the request: held for ever, it would hide a poison event."""
    failure = failure_of(number, "text")
    assert isinstance(failure, Retry)
    assert (failure.reason, failure.counted) == (
        (MISCONFIGURED, False) if number in HELD_AFTER_SIGNING else (SERVER_ERROR, True)
    )
