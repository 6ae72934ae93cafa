"""Tables in a pipe."""

import pytest

from outboxd.cli import show


def test_columns_are_aligned_and_numbers_set_to_the_right() -> None:
    rows = [("room_outbox", "3", "on"), ("x", "1,200", "paused")]
    assert show.plain(("lane", "waiting", "state"), rows, frozenset({"waiting"})) == [
        "lane         waiting  state",
        "room_outbox        3  on",
        "x              1,200  paused",
    ]


def test_a_paragraph_has_a_line_for_each_cell() -> None:
    assert show.paragraph(("lane", "state"), ("room_outbox", "on")) == "lane: room_outbox\nstate: on"


def test_nothing_that_is_printed_moves_a_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    """Cells come from receivers and producers."""
    show.table(("a", "b"), [("\x1b[2J", "line\nbreak")])
    show.line("\x1b[31m\x07")
    assert "\x1b" not in (out := capsys.readouterr().out)
    assert out.splitlines() == ["a        b", "\\x1b[2J  line\\nbreak", "\\x1b[31m\\x07"]
