"""`outboxd prune`: what it deletes, what it asks, and what it refuses."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from outboxd.config.load import load
from tests.services.cli import Cli
from tests.services.daemon import LANE, write_config
from tests.services.lanes import Table, table_of

AN_HOUR_MS = 3_600_000


@pytest.fixture
def cli(database_url: str, tmp_path: Path) -> Cli:
    """A lane that keeps what was delivered for an hour, and another one that keeps everything."""
    lanes = {LANE: {"retention": "1h"}, "room_robot_outbox": {}}
    write_config(tmp_path / "outbox.yaml", database_url, {"null": {"type": "null"}}, lanes=lanes)
    return Cli(tmp_path, tmp_path / "outbox.yaml")


@pytest.fixture
def table(cli: Cli, tmp_path: Path) -> Iterator[Table]:
    """Its rows: delivered two hours ago, half an hour ago, dead, pending."""
    with table_of(load(str(tmp_path / "outbox.yaml"), {})) as table:
        now_ms = table.now_ms()
        table.fill(4, status="delivered", delivered_at_ms=now_ms - 2 * AN_HOUR_MS)
        table.fill(3, status="delivered", delivered_at_ms=now_ms - AN_HOUR_MS // 2)
        table.fill(2, status="failed", created_at_ms=1, updated_at_ms=1)
        table.fill(1, created_at_ms=1)
        yield table


def test_the_lane_s_retention_says_what_is_old(cli: Cli, table: Table) -> None:
    """Looked at first, done with --yes; dead letters, and what waits, stay."""
    assert "would delete 4 rows of room_outbox delivered more than 1 h ago" in cli("prune", LANE, "--dry-run").ok()
    assert sum(table.by_status().values()) == 10
    found = {"lane": LANE, "found": 4, "is_more": False, "deleted": 4, "is_complete": True}
    assert cli("prune", LANE, "--yes", "--json").json == found
    assert table.by_status() == {"delivered": 3, "failed": 2, "pending": 1}
    nothing = {"lane": LANE, "found": 0, "is_more": False, "deleted": 0, "is_complete": True}
    assert cli("prune", LANE, "--json").json == nothing


def test_another_age_may_be_given(cli: Cli, table: Table) -> None:
    """Shorter than the lane's, too."""
    assert "deleted 7 rows of room_outbox" in cli("prune", LANE, "--older-than", "10m", "--yes").ok()
    assert table.by_status() == {"failed": 2, "pending": 1}


@pytest.mark.usefixtures("table")
def test_without_any_age_it_is_refused(cli: Cli) -> None:
    """Nobody said what is old."""
    shown = cli("prune", "room_robot_outbox", "--dry-run")
    assert shown.status == 2
    assert "room_robot_outbox has no retention, so nothing says what is old: give --older-than" in shown.err


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("age", ["soon", "-1h"])
def test_an_age_that_is_none_is_refused(cli: Cli, age: str) -> None:
    """Before anything is looked at."""
    shown = cli("prune", LANE, f"--older-than={age}", "--yes")
    assert (shown.status, "is no duration" in shown.err) == (2, True)


@pytest.mark.parametrize(
    ("age", "why"),
    [
        ("0s", "'0s' is not above zero: write"), ("0d", "is not above zero"), ("0.1ms", "is not above zero"),
        ("99999999d", "'99999999d' is too long: 999999d at most"), ("99999999999h", "is too long"),
    ],
)  # fmt: skip
def test_an_age_of_nothing_is_not_taken_for_the_lane_s_retention(cli: Cli, table: Table, age: str, why: str) -> None:
    """Nothing is deleted by an age that somebody else has set; one that is too long is not told to be misspelt."""
    shown = cli("prune", LANE, "--older-than", age, "--yes")
    assert (shown.status, why in shown.err) == (2, True)
    assert sum(table.by_status().values()) == 10


@pytest.mark.usefixtures("table")
def test_an_age_may_have_decimals_as_in_the_configuration(cli: Cli) -> None:
    """Days, too: 0.02 d are 28 min 48 s."""
    assert "would delete 7 rows" in cli("prune", LANE, "--older-than", "0.02d", "--dry-run").ok()
    assert "would delete 4 rows" in cli("prune", LANE, "--older-than", "0.75h", "--dry-run").ok()


def test_it_asks_first(cli: Cli, table: Table) -> None:
    """Where nobody can answer, nothing is done."""
    shown = cli("prune", LANE)
    assert shown.status == 2
    assert "Delete 4 rows of room_outbox delivered more than 1 h ago for good? Nobody can answer here" in shown.err
    assert sum(table.by_status().values()) == 10
