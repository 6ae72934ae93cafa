"""What may be seen (G11): secrets and the telling parts of URLs are masked, and any text becomes one short line."""

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outboxd import redact
from outboxd.redact import clip, mask, register


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets become known to the whole process; one test's must not mask another's text."""
    monkeypatch.setattr(redact, "_known", frozenset())


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("nothing to hide", "nothing to hide"),
        ("GET https://h/a/b: 500", "GET https://h/a/b: 500"),
        ("connect to http://h:8080: refused", "connect to http://h:8080: refused"),
        ("mysql://u:p@h:3306/db", "mysql://***@h:3306/db"),
        ("x https://token@h/ y", "x https://***@h/ y"),
        ("https://h/?a=b&c=d, refused", "https://h/?*** refused"),
        ("'https://h/p?a=b' and (https://u@h2/?c)", "'https://h/p?*** and (https://***@h2/?***"),
        ("mysql://u:p@ss@h/db", "mysql://***@h/db"),
        ("mysql://u:p/ss@h/db", "mysql://***@h/db"),
        ("mysql://u:p?ss@h/db", "mysql://***?***"),
        ("mysql://u:p#ss@h/db", "mysql://***@h/db"),
        ("mysql://u:it's@h/db", "mysql://***@h/db"),
        ("https://h/users/me@example.com", "https://h/users/me@example.com"),
        ("http://[::1]:80/x", "http://[::1]:80/x"),
        ("http://a/http://u:p@b/?c", "http://a/http://***@b/?***"),
        ('{"url": "http://u:p@h/", "mail": "a@b"}', '{"url": "http://***@h/", "mail": "a@b"}'),
        ("://", "://"),
    ],
)
def test_urls_lose_their_userinfo_and_their_query(text: str, seen: str) -> None:
    assert redact.redact(text) == seen


@given(st.text(alphabet="abc:/?@# '", max_size=40))
def test_redacting_again_changes_nothing(text: str) -> None:
    """A text passes several hands on its way into last_error and the log."""
    once = redact.redact(f"http://{text}")
    assert redact.redact(once) == once


@given(st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126), min_size=12))
def test_a_known_secret_is_masked_in_every_way_it_may_be_written(secret: str) -> None:
    for form in (
        secret, repr(secret), json.dumps(secret), quote(secret, safe=""), base64.b64encode(secret.encode()).decode()
    ):  # fmt: skip
        seen = redact.redact(f"before {form} after", [secret])
        assert secret not in seen
        assert form.strip("'\"=") not in seen
        assert seen.startswith("before ")
        assert seen.endswith(" after")


def test_the_longer_secret_is_masked_whole() -> None:
    assert redact.redact("Bearer abcdef", ["abcd", "Bearer abcdef"]) == "***"


def test_values_under_four_characters_are_not_masked() -> None:
    assert redact.redact("the cat sat", ["cat", "", "a"]) == "the cat sat"
    assert redact.redact("the cats sat", ["cats"]) == "the *** sat"


def test_registered_secrets_are_masked_from_then_on() -> None:
    assert redact.redact("a hunter2 b") == "a hunter2 b"
    register(["hunter2"])
    register(["other-one"])
    assert redact.redact("a hunter2 b other-one") == "a *** b ***"
    assert mask("http://u@hunter2/?a") == "http://u@***/?a"


def test_hostile_text_is_redacted_in_time_that_grows_with_its_length_only() -> None:
    """G9: text of the far side comes through here; a quadratic match over half a megabyte would take minutes."""
    for part in ("://", "://a:b@", "@:", "?", "://a?b", "a" * 10, "://["):
        assert redact.redact(part * (500_000 // len(part)))


@pytest.mark.parametrize(
    ("text", "characters", "line"),
    [
        ("short", 10, "short"),
        ("longer", 4, "long"),
        ("ééé", 2, "éé"),
        ("é".encode(), 5, "é"),
        (b"ok\xff\xfe!", 10, "ok\ufffd\ufffd!"),
        ("a\r\nb\tc\0", 20, "a\\r\\nb\\tc\\x00"),
        ("a\x1b[31m\x85\u2028\u202e", 40, "a\\x1b[31m\\x85\\u2028\\u202e"),
        ("ab\n\n", 5, "ab\\n"),
        ("\ud800x", 5, "\ufffdx"),
        ("anything", 0, ""),
        ("", 5, ""),
    ],
)
def test_any_text_becomes_one_line_cut_on_a_character(text: str | bytes, characters: int, line: str) -> None:
    assert clip(text, characters) == line


@given(st.text() | st.binary(), st.integers(min_value=0, max_value=50))
def test_a_clipped_text_is_short_valid_and_one_line(text: str | bytes, characters: int) -> None:
    """It goes into a column of so many characters of UTF-8, and into a log of one line each."""
    line = clip(text, characters)
    assert len(line) <= characters
    assert line.encode().decode() == line
    assert len(line.splitlines()) <= 1
    assert not any(ord(character) < 32 for character in line)


@given(st.text(alphabet=st.characters(exclude_categories=["C", "Z"])), st.integers(min_value=0, max_value=50))
def test_clipping_bytes_is_clipping_their_text(text: str, characters: int) -> None:
    """Cutting the bytes before they are decoded must not be seen."""
    assert clip(text.encode(), characters) == text[:characters] == clip(text, characters)
