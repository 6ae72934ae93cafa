"""Named SQL statements, one .sql file per concern: `-- name: claim_fresh` starts one, comments say what index it needs.

Parameters are written `:name`. What cannot be a parameter is substituted by `render`: {table}, {now} (the database's
clock in UTC epoch milliseconds) and the columns that a table of the user's own names otherwise.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from outboxd import table as tables
from outboxd.errors import StoreRefused
from outboxd.table import NOW

__all__ = ["NOW", "load", "quoted", "render"]


@cache
def load(name: str) -> Mapping[str, str]:
    """Statements of `{name}.sql` by their names."""
    text = (files(__package__) / f"{name}.sql").read_text(encoding="utf-8")
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    return {key: _bare(body) for key, body in zip(parts[1::2], parts[2::2], strict=True)}


def _bare(body: str) -> str:
    lines = (line.split("-- ")[0].rstrip() for line in body.splitlines())
    return " ".join(line.strip() for line in lines if line.strip()).rstrip(";")


def quoted(name: str, dialect: str) -> str:
    """An identifier as the dialect writes it. Names come from a validated configuration; this is the second lock."""
    if not tables.is_name(name):
        raise StoreRefused(f"{name!r} is not a name for a table or column: letters, digits and _ only")
    return tables.quoted(name, dialect)


def render(sql: str, dialect: str, table: str, columns: Mapping[str, str] | None = None) -> str:
    """The statement for one lane's table."""
    for ours, theirs in (columns or {}).items():
        # A column's name is a whole word that is neither a parameter (:name) nor part of an alias (AS name).
        sql = re.sub(rf"(?<![:\w`\"])(?<!AS ){ours}\b", quoted(theirs, dialect), sql)
    return sql.replace("{table}", quoted(table, dialect)).replace("{now}", NOW[dialect])
