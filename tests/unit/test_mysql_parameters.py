"""How a statement's parameters reach the driver."""

import pytest

from outboxd.store.mysql_connection import _driver_form


@pytest.mark.parametrize(
    ("sql", "form"),
    [
        (":token", "%(token)s"),
        ("WHERE id IN (1,2,3) AND token = :token", "WHERE id IN (1,2,3) AND token = %(token)s"),
        ("(:first,:second)", "(%(first)s,%(second)s)"),
        ("LIKE '%x' AND a = :a", "LIKE '%%x' AND a = %(a)s"),
        ("'12:30', a::text, b:c, ':4'", "'12:30', a::text, b:c, ':4'"),
    ],
)
def test_a_parameter_is_a_word_behind_a_colon_that_stands_alone(sql: str, form: str) -> None:
    """What stands in a text, or has another meaning, stays as it is."""
    assert _driver_form(sql) == form
