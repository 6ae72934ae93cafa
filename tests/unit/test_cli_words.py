"""Times and durations on the command line."""

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outboxd.cli import values
from outboxd.explain import words
from outboxd.explain.words import When

CONTEXT = click.Context(click.Command("test"))
PARAMETER = click.Option(["--since"])


def read_when(text: str) -> When | None:
    return values.read_when(CONTEXT, PARAMETER, text)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (-5, "0.0 s"),
        (400, "0.4 s"),
        (9_949, "9.9 s"),
        (9_960, "10 s"),
        (59_400, "59 s"),
        (59_600, "1 min"),
        (185_000, "3 min 5 s"),
        (3_600_000, "1 h"),
        (3_605_000, "1 h"),
        (7_500_000, "2 h 5 min"),
        (90_061_000, "1 d 1 h"),
        (8_640_000_000, "100 d"),
    ],
)
def test_a_duration_is_told_in_two_units(milliseconds: int, text: str) -> None:
    assert words.lasting(milliseconds) == text


@pytest.mark.parametrize(("epoch_ms", "text"), [(0, "unknown"), (1_795_972_535_243, "2026-11-29 17:15:35Z")])
def test_a_moment_is_told_in_utc(epoch_ms: int, text: str) -> None:
    """G12: two people in two zones must mean the same."""
    assert words.moment(epoch_ms) == text


@given(st.integers(-(2**63), 2**63 - 1))
def test_any_number_in_a_row_can_be_told(number: int) -> None:
    """A producer may have written nonsense into created_at_ms; `explain` must not end over it."""
    assert words.moment(number)
    assert words.lasting(number)


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("2h", When(ago_ms=7_200_000)),
        ("1d12h", When(ago_ms=129_600_000)),
        ("2d", When(ago_ms=172_800_000)),
        ("500ms", When(ago_ms=500)),
        ("0s", When(ago_ms=0)),
        ("2026-11-29", When(at_ms=1_795_910_400_000)),
        ("2026-11-29T17:15:35", When(at_ms=1_795_972_535_000)),
        ("2026-11-29T17:15:35Z", When(at_ms=1_795_972_535_000)),
        ("2026-11-30T01:15:35+08:00", When(at_ms=1_795_972_535_000)),
        ("2026-11-29 17:15", When(at_ms=1_795_972_500_000)),
    ],
)
def test_a_time_is_read_as_an_age_or_an_instant(text: str, when: When) -> None:
    """Without a zone it is UTC, as everything outboxd prints."""
    assert read_when(text) == when
    assert when.epoch_ms(10**13) == (when.at_ms if when.ago_ms is None else 10**13 - when.ago_ms)


@pytest.mark.parametrize("text", ["", "yesterday", "-2h", "2", "2h ago", "1d1d", "2026-13-01", "17:15", "1e3d"])
def test_what_is_no_time_is_refused_with_how_to_write_one(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no time: write how long ago"):
        read_when(text)


@pytest.mark.parametrize(("text", "ms"), [(None, 0), ("10m", 600_000), ("1.5d", 129_600_000), ("1d0.5h", 88_200_000)])
def test_a_delay_is_read_in_milliseconds(text: str | None, ms: int) -> None:
    assert values.read_duration(CONTEXT, PARAMETER, text) == ms


@pytest.mark.parametrize("text", ["", "10", "-10m", "soon"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no duration: write"):
        values.read_duration(CONTEXT, PARAMETER, text)


@pytest.mark.parametrize("text", ["1000000d", "99999999d", "999999d1h", "99999999999h"])
def test_a_duration_or_a_time_that_is_too_long_is_told_to_be(text: str) -> None:
    """It is written well, so how to write one would help nobody."""
    with pytest.raises(click.BadParameter, match="is too long: 999999d at most"):
        values.read_duration(CONTEXT, PARAMETER, text)
    with pytest.raises(click.BadParameter, match="is too long ago: 999999d at most"):
        read_when(text)


@pytest.mark.parametrize(("text", "rate"), [(None, None), ("10", 10.0), ("0.001", 0.001), ("1e6", 1_000_000.0)])
def test_a_rate_is_read(text: str | None, rate: float | None) -> None:
    assert values.read_rate(CONTEXT, PARAMETER, text) == rate


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "-inf", "1e400", "1e-9", "1000001", "", "fast"])
def test_what_is_no_rate_is_refused_with_its_bounds(text: str) -> None:
    """Infinite or no number, it would end in a division or in a sleep for ever."""
    with pytest.raises(click.BadParameter, match=r"write a number from 0\.001 to 1,000,000 "):
        values.read_rate(CONTEXT, PARAMETER, text)


def test_counts_have_their_plural() -> None:
    assert [words.counted(n, "event") for n in (0, 1, 2, 1200)] == ["0 events", "1 event", "2 events", "1,200 events"]
