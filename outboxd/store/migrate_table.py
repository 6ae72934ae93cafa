"""What stands in a MySQL database: the server, a lane's table, and whether its columns are as ours must be."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from outboxd.config.schema import PARTITIONS, ROOM_PARTITION, Lane
from outboxd.errors import StoreRefused
from outboxd.store.connection import Connection, Row
from outboxd.store.migrations import ORDER_STATEMENTS, PARTITION_TABLE, definition, theirs

OLDEST = {"MySQL": (8, 0, 1), "MariaDB": (10, 6, 0)}
_EXPRESSION_DEFAULTS = {"MySQL": (8, 0, 13), "MariaDB": (10, 2, 1)}

STATUS_TYPE = "enum('pending','delivering','delivered','retryable','failed')"
_INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
_TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum"})
_BYTES = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_BINARY_COLLATIONS = frozenset({"ascii_bin", "utf8mb4_bin"})
WIDEST_KEPT = 255
"""Characters of a key column that is wider than ours and stays so; wider ones would not fit an index."""


@dataclass(frozen=True, slots=True)
class Server:
    """kind: MySQL or MariaDB."""

    kind: str
    version: tuple[int, ...]

    @property
    def has_expression_defaults(self) -> bool:
        return self.version >= _EXPRESSION_DEFAULTS[self.kind]


@dataclass(frozen=True, slots=True)
class Column:
    """One row of information_schema.columns. size: characters, 0 where that says nothing."""

    name: str
    data_type: str
    column_type: str
    nullable: bool
    default: str | None
    size: int
    charset: str
    collation: str
    extra: str


@dataclass(frozen=True, slots=True)
class Index:
    """columns: names as the table has them, in order."""

    unique: bool
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """columns: by their names in lower case. rows, size_bytes: the server's estimates. foreign: columns of foreign
    keys, of this table or to it, in lower case.
    """

    engine: str
    rows: int
    size_bytes: int
    columns: Mapping[str, Column]
    indexes: Mapping[str, Index]
    triggers: frozenset[str]
    foreign: frozenset[str] = frozenset()

    def column(self, lane: Lane, ours: str) -> Column | None:
        """The column that stands for ours."""
        return self.columns.get(theirs(lane, ours).lower())

    def has_unique(self, *names: str) -> bool:
        """Is there a unique index of exactly these columns?"""
        wanted = tuple(name.lower() for name in names)
        return any(i.unique and tuple(c.lower() for c in i.columns) == wanted for i in self.indexes.values())


@dataclass(frozen=True, slots=True)
class Rule:
    """What a column of ours must be. becomes: types that can be converted into it without losing anything."""

    types: frozenset[str]
    becomes: frozenset[str]
    size: int = 0
    nullable: bool = False
    default: str | None = None
    is_key: bool = False


def _key(size: int, default: str | None = None) -> Rule:
    return Rule(frozenset({"varchar"}), _TEXTS | _INTEGERS | {"uuid"}, size, default=default, is_key=True)


def _text(data_type: str, size: int, *, nullable: bool = False, default: str | None = None) -> Rule:
    return Rule(frozenset({data_type}), _TEXTS, size, nullable, default)


_NUMBER = Rule(frozenset({"bigint"}), _INTEGERS, default="0")
RULES: Mapping[str, Rule] = {
    "id": Rule(_INTEGERS, _INTEGERS),
    "app_code": _key(32, ""),
    "event_id": _key(64),
    "event_type": _key(64),
    "room_id": _key(64),
    "envelope": Rule(frozenset({"mediumblob", "longblob"}), _TEXTS | _BYTES | {"json"}),
    "content_type": _text("varchar", 64, default="application/json"),
    "headers": Rule(frozenset({"json", "longtext", "mediumtext", "text"}), frozenset(), nullable=True),
    "status": Rule(frozenset({"enum"}), _TEXTS, default="pending"),
    "worker_id": _text("char", 64, default=""),
    "claim_token": _NUMBER,
    "lock_until_ms": _NUMBER,
    "retry_count": Rule(frozenset({"int", "bigint"}), _INTEGERS, default="0"),
    "next_retry_at_ms": _NUMBER,
    "published_to": _text("varchar", 255, nullable=True),
    "last_error": _text("varchar", 512, nullable=True),
    "created_at_ms": Rule(frozenset({"bigint"}), _INTEGERS),
    "updated_at_ms": _NUMBER,
    "delivered_at_ms": _NUMBER,
}
"""Every column of ours but due_at_ms, which is generated."""


def fits(ours: str, column: Column) -> bool:
    """Is the column as ours must be? Wider texts and numbers are, and a stricter one that may be NULL in ours."""
    rule = RULES[ours]
    if ours == "status" and column.column_type != STATUS_TYPE:
        return False
    return (
        column.data_type in rule.types
        and (rule.nullable or not column.nullable)
        and column.size >= rule.size
        and (rule.default is None or column.default == rule.default)
        and (not rule.is_key or column.collation in _BINARY_COLLATIONS)
        and (ours != "last_error" or column.charset == "utf8mb4")
    )


def definition_for(ours: str, lane: Lane, column: Column | None, *, ascii_ids: bool = True) -> str:
    """Our column's definition, keeping what the table's own has more of: width of a key, the range of an envelope.

    ascii_ids: no event_id holds anything but ASCII.
    """
    text = definition(ours, "mysql", lane)
    if ours == "event_id" and not ascii_ids:
        text = text.replace("CHARACTER SET ascii COLLATE ascii_bin", "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    if column is None:
        return text
    if ours == "envelope" and column.data_type in {"longtext", "longblob", "json"}:
        return text.replace("MEDIUMBLOB", "LONGBLOB")
    if RULES[ours].is_key:
        return re.sub(r"VARCHAR\(\d+\)", f"VARCHAR({width_for(ours, column)})", text)
    return text


def width_for(ours: str, column: Column) -> int:
    """Characters that a key column will hold."""
    keeps = column.data_type in {"char", "varchar"} and RULES[ours].size < column.size <= WIDEST_KEPT
    return column.size if keeps else RULES[ours].size


def server_of(connection: Connection) -> Server:
    """The server. Raises StoreRefused when it is too old to pass over locked rows."""
    text = str(connection.query("SELECT VERSION()")[0][0])
    kind = "MariaDB" if "mariadb" in text.lower() else "MySQL"
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", text)
    version = tuple(map(int, found.groups())) if found else (0, 0, 0)
    if version < OLDEST[kind]:
        oldest = " or ".join(f"{name} {'.'.join(map(str, least))}" for name, least in OLDEST.items())
        raise StoreRefused(f"the server is {kind} {text}, which cannot SKIP LOCKED rows: it must be at least {oldest}")
    return Server(kind, version)


def inspect(connection: Connection, name: str) -> Table | None:
    """The table of this name in the connection's database, None where there is none."""
    here = "TABLE_SCHEMA = DATABASE() AND TABLE_NAME = :name"
    found = connection.query(
        "SELECT TABLE_TYPE, COALESCE(ENGINE, ''), COALESCE(TABLE_ROWS, 0), COALESCE(DATA_LENGTH, 0) "
        f"FROM information_schema.TABLES WHERE {here}",
        {"name": name},
    )
    if not found:
        return None
    table_type, engine, rows, size_bytes = found[0]
    if table_type != "BASE TABLE":
        raise StoreRefused(f"{name} is a {str(table_type).lower()}, not a table: rename it, or the lane")
    columns = connection.query(
        "SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, COLUMN_DEFAULT, "
        "COALESCE(CHARACTER_MAXIMUM_LENGTH, 0), COALESCE(CHARACTER_SET_NAME, ''), COALESCE(COLLATION_NAME, ''), EXTRA "
        f"FROM information_schema.COLUMNS WHERE {here}",
        {"name": name},
    )
    parts = connection.query(
        "SELECT INDEX_NAME, NON_UNIQUE, COLUMN_NAME FROM information_schema.STATISTICS "
        f"WHERE {here} ORDER BY INDEX_NAME, SEQ_IN_INDEX",
        {"name": name},
    )
    triggers = connection.query(
        "SELECT TRIGGER_NAME FROM information_schema.TRIGGERS "
        "WHERE EVENT_OBJECT_SCHEMA = DATABASE() AND EVENT_OBJECT_TABLE = :name",
        {"name": name},
    )
    foreign = connection.query(
        "SELECT COLUMN_NAME FROM information_schema.KEY_COLUMN_USAGE "
        f"WHERE {here} AND REFERENCED_COLUMN_NAME IS NOT NULL "
        "UNION SELECT REFERENCED_COLUMN_NAME FROM information_schema.KEY_COLUMN_USAGE "
        "WHERE REFERENCED_TABLE_SCHEMA = DATABASE() AND REFERENCED_TABLE_NAME = :name",
        {"name": name},
    )
    indexes = {
        str(index): Index(not non_unique, tuple(str(part[2]) for part in parts if part[0] == index))
        for index, non_unique, _ in parts
    }
    return Table(
        engine=str(engine),
        rows=int(rows),
        size_bytes=int(size_bytes),
        columns={str(row[0]).lower(): _column(row) for row in columns},
        indexes=indexes,
        triggers=frozenset(str(row[0]) for row in triggers),
        foreign=frozenset(str(row[0]).lower() for row in foreign),
    )


def indexes_for(lane: Lane) -> Mapping[str, list[str]]:
    """The index that claims read, and its columns' names in lower case."""
    due, partition = theirs(lane, "due_at_ms").lower(), theirs(lane, ROOM_PARTITION).lower()
    return {"rooms": [partition, due]} if lane.is_ordered else {"due": [due]}


def lacks_order(connection: Connection, table: Table, lane: Lane) -> tuple[str, ...]:
    """Which of ORDER_STATEMENTS an ordered lane's table still needs."""
    column, index, rows = ORDER_STATEMENTS
    count = 0
    if inspect(connection, PARTITION_TABLE):
        counted = f"SELECT COUNT(*) FROM {PARTITION_TABLE} WHERE lane = :lane"
        count = connection.query(counted, {"lane": lane.name})[0][0]
    lacks = {
        column: table.column(lane, ROOM_PARTITION) is None,
        index: "rooms" not in table.indexes,
        rows: count < PARTITIONS,
    }
    return tuple(name for name, is_lacking in lacks.items() if is_lacking)


def _column(row: Row) -> Column:
    name, data_type, column_type, nullable, default, size, charset, collation, extra = row
    return Column(
        name=str(name),
        data_type=str(data_type).lower(),
        column_type=str(column_type).lower(),
        nullable=nullable == "YES",
        default=_default(default),
        size=min(int(size), 2**31),
        charset=str(charset).replace("utf8mb3", "utf8"),
        collation=str(collation),
        extra=str(extra).upper(),
    )


def _default(value: object) -> str | None:
    """MariaDB writes 'text' with its quotes and NULL as a word; MySQL writes neither."""
    if value is None or value == "NULL":
        return None
    text = str(value)
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == "'" else text
