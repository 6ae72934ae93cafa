"""The database's error numbers, as the relay understands them (G10). Classes of the driver say nothing."""

import pytest
from MySQLdb import InterfaceError, OperationalError, ProgrammingError

from outboxd.errors import StoreConflict, StoreError, StoreRefused, StoreUnavailable
from outboxd.store.mysql_connection import translated


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (1205, StoreConflict),  # lock wait
        (1213, StoreConflict),  # deadlock, on Galera also at COMMIT
        (1412, StoreConflict),  # an ALTER in the middle of the transaction
        (2002, StoreUnavailable),
        (2006, StoreUnavailable),
        (2013, StoreUnavailable),
        (1040, StoreUnavailable),  # too many connections
        (1053, StoreUnavailable),  # shutdown
        (1290, StoreUnavailable),  # read-only: a fail-over
        (1792, StoreUnavailable),
        (1836, StoreUnavailable),
        (3, StoreUnavailable),  # the binary log's disk is full, at COMMIT
        (1021, StoreUnavailable),  # disk full
        (6, StoreUnavailable),  # nor deleted
        (1041, StoreUnavailable),  # out of memory
        (1114, StoreUnavailable),  # table full, or its disk
        (1598, StoreUnavailable),  # the binary log cannot be written
        (1969, StoreUnavailable),  # statement limit
        (1044, StoreRefused),
        (1045, StoreRefused),
        (1049, StoreRefused),
        (1054, StoreRefused),
        (1146, StoreRefused),
        (1064, StoreRefused),
    ],
)
def test_a_number_tells_what_to_do(number: int, kind: type[StoreError]) -> None:
    """Repeat, reconnect, or ask a person."""
    for driver in (OperationalError, ProgrammingError):
        error = translated(driver(number, "what the server said"), "the database failed")
        assert type(error) is kind
        assert f"({number})" in str(error)


@pytest.mark.parametrize("number", [1044, 1045, 1049, 1054, 1142, 1146, 1698])
def test_what_needs_a_person_says_what_to_do(number: int) -> None:
    """One line, and the remedy in it."""
    text = str(translated(OperationalError(number, "refused"), "cannot connect"))
    assert "\n" not in text
    assert text.startswith("cannot connect: refused")
    assert any(word in text for word in ("grant", "check", "create", "correct", "run"))


def test_a_closed_connection_is_unavailable() -> None:
    """mysqlclient says (0, '') of one that it has closed itself."""
    assert type(translated(InterfaceError(0, ""), "the database failed")) is StoreUnavailable
