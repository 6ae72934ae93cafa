"""docs/jobs.md says what cron expressions do."""

import re
from dataclasses import replace
from datetime import UTC
from itertools import pairwise
from pathlib import Path

import pytest

from outboxd.errors import CronError
from outboxd.schedule.cron import EXPRESSION_CHARACTERS, LATE_S, MACROS, parse
from outboxd.schedule.cron_fields import FIELDS
from outboxd.schedule.ticks import REMEMBERED_S
from outboxd.schedule.zone import offset_of
from tests.unit.wallclock import at

DOCUMENT = (Path(__file__).parents[2] / "docs" / "jobs.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """With its own sections."""
    found = re.search(rf"^(#+) {title}\n(.*?)(?=^##? |\Z)", DOCUMENT, re.DOTALL | re.MULTILINE)
    assert found, f"docs/jobs.md has no heading {title}"
    return found[2]


RUNS = {
    # from Sunday 29 November 2026 on: so many in two weeks, and the first one
    "0 30 2 * * *": (14, "2026-11-29 02:30:00"),
    "*/10 * * * * *": (14 * 8640, "2026-11-29 00:00:00"),
    "0 0/15 9-17 * * Mon-Fri": (10 * 36, "2026-11-30 09:00:00"),
    "0 0 9 1,15 * ?": (1, "2026-12-01 09:00:00"),
    "0 0 0 1-7 * Mon": (1, "2026-12-07 00:00:00"),
    "# 30 2 * * *": (14, "2026-11-29 02:30:00"),
    "@hourly": (14 * 24, "2026-11-29 00:00:00"),
    "@every 90s": (14 * 960, "2026-11-29 00:00:00"),
}


def test_the_examples_run_as_is_said() -> None:
    """A person copies them."""
    rows = re.findall(r"^\| `([^`]+)` \| [a-z]", section("Cron expressions").split("| in a field |")[0], re.MULTILINE)
    assert set(rows) == RUNS.keys()
    start_s, end_s = at("2026-11-29") - 1, at("2026-12-13") - 1
    for expression, (count, first) in RUNS.items():
        schedule = parse(expression, at("2026-11-28"), offset_of(UTC))
        assert (schedule.count(start_s, end_s), schedule.next_after(start_s)) == (count, at(first)), expression


def test_the_names_stand_for_what_is_said() -> None:
    text = section("Cron expressions")
    for name, pattern in MACROS.items():
        assert re.search(rf"`{name}` = (`@midnight` = |`@annually` = )?`{re.escape(pattern)}`", text), name


def test_the_values_of_every_field_are_said() -> None:
    rows = re.findall(r"^\| ([a-z ,]+) \| (\d+ to \d+)", section("Cron expressions"), re.MULTILINE)
    said = {title: span for titles, span in rows for title in titles.split(", ")}
    assert said == {field.title: field.span() for field in FIELDS}


def test_the_figures_are_the_programs() -> None:
    assert f"At most {EXPRESSION_CHARACTERS} characters" in DOCUMENT
    assert f"at most {LATE_S} s late" in section("What happens to ticks that are late")
    assert REMEMBERED_S == 2 * 3600
    assert "set back by up to two hours" in section("What happens to ticks that are late")
    ends = [parse(f"@every {text}").every_s for text in ("1s", "3650d")]
    assert f"from `1s` to `{ends[1] // 86_400}d`" in DOCUMENT
    assert all(first < second for first, second in pairwise(ends))


@pytest.mark.parametrize("expression", ["0 0 2 30 2 *", "0 0 2 * * Fri-Mon", "0 2 * * *", "0 0 2 * * 7", "0 0 2 L * *"])
def test_what_is_said_to_be_refused_is(expression: str) -> None:
    with pytest.raises(CronError):
        parse(expression)
    parse("0 0 2 * * Fri,Sat,Sun,Mon")


def test_what_the_program_advises_to_go_round_is_what_the_page_does() -> None:
    """And both ways to write it that the page has mean the same."""
    with pytest.raises(CronError) as refused:
        parse("0 0 2 * * Fri-Mon")
    (advice,) = re.findall(r"write (\S+) to go round", str(refused.value))
    (first, second) = re.findall(r"\(`Fri-Mon`; write `(\S+)` or `(\S+)`\)", DOCUMENT)[0]
    assert first == advice
    both = [replace(parse(f"0 0 2 * * {days}"), expression="") for days in (first, second)]
    assert both[0] == both[1]
