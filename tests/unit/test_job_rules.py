"""What may be written down as a job, and how a refusal is told."""

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outboxd.schedule import rules
from outboxd.schedule.rules import BadJob, NewJob

GOOD = NewJob(name="nightly", cron_expression="0 30 2 * * *", url="HelloWorld")

URLS = [
    "HelloWorld", "_x", "shop.jobs-1.Clean_up", "A" * 64, "http://h", "https://h:8443/a/b?c=d%20e", "HTTP://127.0.0.1/",
    "http://[::1]:80/x",
]  # fmt: skip
NO_URLS = {
    "": "is empty", "1x": "no handler's name", "A" * 65: "no handler's name", "a b": "no handler's name",
    "näme": "no handler's name", "a/b": "cannot be called", "ftp://h/": "unknown scheme", "http:/h": "names no host",
    "http://": "names no host", "http://h:0x/": "port", "http://h/ä": "percent-encode", "http://u@h/": "a user or a",
    "http://u:p@h/": "a user or a password", "http://h/#a": "fragment", "//h/": "unknown scheme", "h:80": "unknown",
    "http://h\\@evil/": "",
}  # fmt: skip


def refusal(**changes: object) -> BadJob:
    with pytest.raises(BadJob) as caught:
        rules.check_new(replace(GOOD, **changes))  # type: ignore[arg-type]  # each test's words are NewJob's own
    assert caught.value.what
    assert caught.value.todo
    return caught.value


@pytest.mark.parametrize("url", URLS)
def test_a_url_or_a_handlers_name_is_taken(url: str) -> None:
    rules.check_new(replace(GOOD, url=url))


@pytest.mark.parametrize("url", NO_URLS)
def test_what_is_neither_is_refused_with_the_reason(url: str) -> None:
    """At once, not by the first run at night."""
    assert NO_URLS[url] in refusal(url=url).what


@pytest.mark.parametrize("field", ["name", "cron_expression", "url", "params", "remark"])
@pytest.mark.parametrize("character", ["\x00", "\x1b", "\x7f", chr(0xD800), chr(0xDFFF)])
def test_no_control_character_and_no_half_of_one_gets_in(field: str, character: str) -> None:
    """A terminal would obey it, a driver would fail at it."""
    assert rules._the(field) in refusal(**{field: f"a{character}b"}).what


@pytest.mark.parametrize("character", ["\n", "\t", "\r"])
def test_params_may_be_written_on_several_lines(character: str) -> None:
    """It is the text of a JSON document, mostly; a name is one line."""
    rules.check_new(replace(GOOD, params=f"{{{character}}}"))
    refusal(remark=f"a{character}b")


@pytest.mark.parametrize("params", ["{", "plain", "{'a': 1}", '{"a": NaN}', "[" * 4000, "1 2"])
def test_what_is_posted_must_be_json(params: str) -> None:
    """A handler takes any text."""
    rules.check_new(replace(GOOD, params=params))
    assert "params are no JSON" in refusal(url="http://h/", params=params).what
    for good in ("", " ", "{}", ' {"a": [1, "\u00e9"]}\n', "null"):
        rules.check_new(replace(GOOD, url="http://h/", params=good))


@given(st.text())
def test_whatever_is_written_is_taken_or_refused_with_a_reason(text: str) -> None:
    """Nothing else may be raised."""
    for field in ("name", "cron_expression", "url", "params", "remark"):
        with contextlib.suppress(BadJob):
            rules.check_new(replace(GOOD, **{field: text}))  # type: ignore[arg-type]  # texts, all of them
    assert isinstance(rules.why_bad_cron(text), str)


@pytest.mark.parametrize("field", ["execute_policy", "is_sync"])
@pytest.mark.parametrize("value", [-1, 4, 2**70])
def test_numbers_out_of_their_range_are_refused(field: str, value: int) -> None:
    assert str(value) in refusal(**{field: value}).what
