"""How the ids of a statement are written down: ranges where they follow one another, a list of the rest."""

import re
import sqlite3
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outboxd.store.lists import among

ASCENDING = st.sets(st.integers(1, 60), min_size=1, max_size=60).map(sorted)


def chosen(ids: Sequence[int]) -> list[int]:
    """Which of the numbers 0 to 61 a database finds by the condition."""
    with sqlite3.connect(":memory:") as connection:
        numbers = "WITH RECURSIVE n(id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM n WHERE id < 61)"
        return [row[0] for row in connection.execute(f"{numbers} SELECT id FROM n WHERE {among('id', ids)}")]


@given(ASCENDING)
def test_exactly_the_given_rows_are_meant(ids: list[int]) -> None:
    """G2, G3: a claim writes into no row that it has not locked, whatever lies between those that it has."""
    assert chosen(ids) == ids


@given(ASCENDING)
def test_a_scan_ends_on_a_row_of_its_own(ids: list[int]) -> None:
    """A scan locks, for a moment, the row behind its range. If it were another worker's to claim, that one would pass
    it over, and the event would wait for the next sweep."""
    for last in re.findall(r"BETWEEN \d+ AND (\d+)", among("id", ids)):
        assert int(last) + 1 in ids


@pytest.mark.parametrize(
    ("ids", "condition"),
    [
        ([7], "(id IN (7))"),
        ([1, 2, 3], "(id IN (1,2,3))"),
        ([1, 2, 3, 4], "(id BETWEEN 1 AND 3 OR id IN (4))"),
        ([1, 2, 3, 4, 9, 11, 12, 13, 14, 15], "(id BETWEEN 1 AND 3 OR id BETWEEN 11 AND 14 OR id IN (4,9,15))"),
    ],
)
def test_neighbours_become_a_range(ids: list[int], condition: str) -> None:
    """A list costs the server twice as much; it parses, sorts and looks up every number of it."""
    assert among("id", ids) == condition


def test_a_whole_batch_is_one_range() -> None:
    """The usual claim, of rows that follow one another."""
    assert among("`key`", range(501, 1001)) == "(`key` BETWEEN 501 AND 999 OR `key` IN (1000))"
