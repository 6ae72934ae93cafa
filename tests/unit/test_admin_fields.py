"""What a request to the admin API asks for is read strictly: a slip is told, and nothing is guessed."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outboxd.admin import fields
from outboxd.admin.access import Refused
from outboxd.explain.words import When

JSON = "application/json"
NAMES = (*fields.FILTERS, "event_id", "dry_run", "all")


def refusal(read: Any, *arguments: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        read(*arguments)
    assert caught.value.error
    return caught.value


def test_a_query_is_decoded() -> None:
    """Empty is not the same as left out: it asks for events without a tenant."""
    read = fields.of_query("lane=a%2Fb&app=&room=r%20%C3%BC+x", NAMES)
    assert read == {"lane": "a/b", "app": "", "room": "r ü x"}
    assert fields.of_query("", NAMES) == {}


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("lane=%zz", "a % that begins no escape"),
        ("lane=%2", "a % that begins no escape"),
        ("lane=%ff", "no UTF-8"),
        ("lane=a&lane=b", "lane is given twice"),
        ("limt=3", "unknown name limt, did you mean limit?"),
        ("%00=1", "unknown name \\x00"),
        (f"{'x' * 5000}=1", "unknown name xxx"),
    ],
)
def test_a_query_that_slips_is_told(query: str, told: str) -> None:
    """A filter that is misspelt and ignored would replay everything."""
    found = refusal(fields.of_query, query, NAMES)
    assert (found.status, told in found.error, len(found.error) < 300) == (400, True, True), found.error


@pytest.mark.parametrize("kind", [JSON, "Application/JSON", f"{JSON}; charset=utf-8", f'{JSON};charset="UTF-8"'])
def test_a_body_is_a_json_object(kind: str) -> None:
    body = '{"lane": "ü", "dry_run": true, "limit": 3}'.encode()
    assert fields.of_body(body, kind, NAMES) == {"lane": "ü", "dry_run": True, "limit": 3}


@pytest.mark.parametrize(
    "kind",
    ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonp",
     f"{JSON}; charset=latin-1", f"{JSON}, text/plain"],
)  # fmt: skip
def test_a_body_of_another_kind_is_refused(kind: str) -> None:
    """A form can be posted from any page on the web."""
    assert refusal(fields.of_body, b"{}", kind, NAMES).status == 415


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b'"text"', b"1", b'{"lane": "\xff"}', b'{"lane": NaN}', b"{}{}", b"\xef\xbb\xbf{}",
        b'{"lane": "\\ud800"}', b"[" * 30_000 + b"]" * 30_000, b'{"lane":' * 5000 + b"1" + b"}" * 5000,
        b'{"limt": 3}', b'{"dry_run": true, "unknown": {}}',
    ],
)  # fmt: skip
def test_a_body_that_cannot_be_read_is_told(body: bytes) -> None:
    """Bad JSON, deep JSON, bad UTF-8, unknown names: an answer, and never an exception."""
    found = refusal(fields.of_body, body, JSON, NAMES)
    assert (found.status, len(found.error) < 300) == (400, True)


@given(st.binary(max_size=200))
def test_no_body_ends_in_anything_but_an_answer(body: bytes) -> None:
    with contextlib.suppress(Refused):
        assert isinstance(fields.of_body(body, JSON, NAMES), dict)


@pytest.mark.parametrize(
    ("given", "read", "told"),
    [
        ({"lane": 5}, fields.text, "lane is no text"),
        ({"lane": ["a"]}, fields.text, "lane is no text"),
        ({"lane": "yes"}, fields.flag, "lane is neither true nor false"),
        ({"lane": 1}, fields.flag, "lane is neither true nor false"),
    ],
)
def test_a_value_of_another_type_is_told(given: dict[str, object], read: Any, told: str) -> None:
    assert refusal(read, given, "lane").error == told


@pytest.mark.parametrize("value", ["", "0", "-1", "1.5", "ten", "101", "9" * 30, 0, 101, 1.5, True, [], "١"])
def test_a_number_outside_its_bounds_is_told(value: object) -> None:
    """With the bounds."""
    assert refusal(fields.whole, {"limit": value}, "limit", 100).error == "limit is no whole number from 1 to 100"


def test_a_number_is_read_from_a_query_and_from_json() -> None:
    assert [fields.whole({"limit": value}, "limit", 100) for value in ("7", 7, "100", 1)] == [7, 7, 100, 1]
    assert fields.whole({}, "limit", 100) is None


def test_which_dead_letters_are_meant_is_read_as_the_commands_read_it() -> None:
    """The same times, the same words."""
    given = {"since": "2h", "until": "2026-11-29", "event_type": "Room*", "app": "", "limit": "9"}
    wanted = fields.wanted(given, "e1")
    assert (wanted.since, wanted.until) == (When(ago_ms=7_200_000), When(at_ms=1_795_910_400_000))
    assert (wanted.event_id, wanted.event_type, wanted.app, wanted.limit) == ("e1", "Room*", "", 9)
    assert not wanted.is_all
    assert "is no time" in refusal(fields.wanted, {"since": "yesterday"}).error
    assert fields.wanted({"lane": "room_outbox", "limit": "5"}).is_all, "neither tells which ones"


@pytest.mark.parametrize(("target", "fits"), [("/a%2Fb%20", True), ("/a%2", False), ("/%zz?x=%zz", False)])
def test_a_path_with_half_an_escape_is_told(target: str, fits: bool) -> None:
    """It would be taken for an event id that nobody has."""
    if fits:
        fields.check_path(target)
    else:
        assert refusal(fields.check_path, target).status == 400


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1700000000000", When(1_700_000_000_000)),
        ("2h", When(ago_ms=7_200_000)),
        ("2023-11-14T22:13:20Z", When(1_700_000_000_000)),
    ],
)
def test_an_instant_may_be_given_as_programs_have_it(text: str, expected: When) -> None:
    """UTC epoch milliseconds, beside what people write."""
    assert fields.instant({"from": text}, "from") == expected


@pytest.mark.parametrize("text", ["1700000000", "17000000000000000", "-1700000000000", "1e12", ""])
def test_what_is_no_instant_is_refused(text: str) -> None:
    """Seconds, above all: they would be a day in 1970."""
    assert "is no time" in refusal(fields.instant, {"from": text}, "from").error
