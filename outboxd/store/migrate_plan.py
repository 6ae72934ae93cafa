"""What a lane's table on MySQL or MariaDB needs, as steps: found by looking at what stands there, changing nothing."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from outboxd.config.schema import Lane
from outboxd.errors import StoreRefused
from outboxd.store import statements
from outboxd.store.connection import Connection
from outboxd.store.migrate_adopt import (
    DELIVERED,
    Adoption,
    id_sql,
    lacks_id,
    mark_sql,
    may_be_added,
    obstacles,
    undecided,
    with_id,
)
from outboxd.store.migrate_checks import (
    FILLED,
    Facts,
    column_of,
    converted,
    default_of,
    facts_of,
    fix_of,
    problems,
    refusals,
)
from outboxd.store.migrate_table import RULES, Server, Table, definition_for, inspect, lacks_order
from outboxd.store.migrations import ORDER_STATEMENTS, definition, statement, theirs, without_status


@dataclass(frozen=True, slots=True)
class Step:
    """One statement. kind: `create`, `trigger`, `fix` and `mark` (in chunks), `alter`, `key` or `insert`. says: told
    before it runs.
    """

    kind: str
    sql: str
    says: str = ""


@dataclass(frozen=True, slots=True)
class Work:
    """A lane as found (None: nothing there) and what is to be done about it. facts: of an older table."""

    lane: Lane
    table: Table | None
    facts: Facts | None
    steps: tuple[Step, ...]


def survey(connection: Connection, lane: Lane, server: Server, adoption: Adoption | None = None) -> Work:
    """What one lane needs. adoption: the table is of another make and may be given what it lacks. Raises StoreRefused,
    listing everything that a person must decide first.
    """
    table = inspect(connection, lane.name)
    if table is None:
        sql = statement("lane", "mysql", lane, constant_default=not server.has_expression_defaults)
        create = Step("create", sql, f"{lane.name}: creating the table")
        return Work(lane, None, None, (create, *_order_steps(lane, ORDER_STATEMENTS if lane.is_ordered else ())))
    wrong: list[str] = []
    ahead: Sequence[Step] = ()
    behind: Sequence[Step] = ()
    if adoption is not None:
        wrong = [*obstacles(table, lane), *undecided(connection, table, lane, adoption)]
        table, ahead, behind = _adopted(table, lane, adoption)
    wrong += problems(table, lane, may_be_added(lane) if adoption is not None else ())
    facts = None
    if not wrong and _is_older(table, lane):
        facts = facts_of(connection, table, lane)
        wrong = list(refusals(facts))
    if wrong:
        raise StoreRefused(f"{lane.name} cannot be migrated, nothing was changed: {'; '.join(wrong)}; then try again")
    order = _order_steps(lane, lacks_order(connection, table, lane) if lane.is_ordered else ())
    return Work(lane, table, facts, (*ahead, *_steps(table, lane, server, facts), *order, *behind))


def announcement(work: Work) -> Iterator[str]:
    """What is told of a table that stands there, before anything is changed."""
    lane, facts = work.lane, work.facts
    if work.table is None or not work.steps or facts is None or not facts.rows:
        return
    if work.table.column(lane, "status") is None:  # no older worker of ours ever was at it
        yield f"{lane.name}: a table of another make with {facts.rows:,} rows"
        if not any(step.kind == "mark" for step in work.steps):
            yield without_status(lane, facts.rows)
        return
    listed = ", ".join(f"{status} {count:,}" for status, count in sorted(facts.statuses.items(), key=str))
    yield f"{lane.name}: an older table with {facts.rows:,} rows ({listed})"
    yield f"{lane.name}: stop its older workers first, they settle without a token"
    if facts.leased:
        yield f"{lane.name}: {facts.leased:,} rows are under a running lease: an older worker may be alive"


def _adopted(table: Table, lane: Lane, adoption: Adoption) -> tuple[Table, Sequence[Step], Sequence[Step]]:
    """The table with a key of ours; what is to be done before and after everything else for it."""
    ahead: list[Step] = []
    behind: list[Step] = []
    marks = adoption.existing == DELIVERED and table.column(lane, "status") is None
    if lacks_id(table, lane):
        ahead.append(Step("key", *id_sql(table, lane)))
        table = with_id(table, lane)
    if marks:
        remember, mark = mark_sql(lane)
        ahead.append(Step("insert", remember))
        behind.append(Step("mark", mark, f"{lane.name}: marking the rows that stand there as delivered"))
    return table, ahead, behind


def _is_older(table: Table, lane: Lane) -> bool:
    has_status = table.column(lane, "status") is not None
    is_unique = table.has_unique(theirs(lane, "app_code"), theirs(lane, "event_id"))
    return bool(converted(table, lane)) or not has_status or not is_unique


def _steps(table: Table, lane: Lane, server: Server, facts: Facts | None) -> Iterator[Step]:
    name = statements.quoted(lane.name, "mysql")
    changed = converted(table, lane)
    nullable = [ours for ours in FILLED if ours in changed and changed[ours].nullable]
    if nullable and nulls_trigger(lane) not in table.triggers:
        yield Step("trigger", _trigger_sql(lane, nullable))
    assign, condition = fix_of(table, lane)
    if facts is not None and facts.to_fix:
        sql = f"UPDATE {name} SET {assign} WHERE {condition}"
        yield Step("fix", sql, f"{lane.name}: mending rows first, in chunks, beside running producers")
    envelope = changed.get("envelope")
    if envelope is not None and envelope.charset not in {"", "utf8", "utf8mb4", "ascii", "binary"}:
        text = f"{column_of(lane, 'envelope')} LONGTEXT CHARACTER SET utf8mb4 NOT NULL"
        says = f"{lane.name}: turning envelope from {envelope.charset} to UTF-8"
        yield Step("alter", f"ALTER TABLE {name} MODIFY {text}", says)
    ascii_ids = facts is None or not facts.odd_ids
    parts = [f"MODIFY {definition_for(o, lane, column, ascii_ids=ascii_ids)}" for o, column in changed.items()]
    missing = [ours for ours in RULES if table.column(lane, ours) is None]
    parts += [f"ADD COLUMN {definition_for(ours, lane, None)}" for ours in missing]
    if table.engine.lower() != "innodb":
        parts.append("ENGINE=InnoDB")
    if parts:
        yield Step("alter", f"ALTER TABLE {name} {', '.join(parts)}", f"{lane.name}: changing {len(parts)} columns")
    yield from _after_columns(table, lane, server)


def _after_columns(table: Table, lane: Lane, server: Server) -> Iterator[Step]:
    name = statements.quoted(lane.name, "mysql")
    created = table.column(lane, "created_at_ms")
    if server.has_expression_defaults and not (created and "utc_timestamp" in (created.default or "").lower()):
        default = statements.NOW["mysql"]
        yield Step("alter", f"ALTER TABLE {name} ALTER COLUMN {column_of(lane, 'created_at_ms')} SET DEFAULT {default}")
    if table.column(lane, "due_at_ms") is None:
        yield Step("alter", f"ALTER TABLE {name} ADD COLUMN {definition('due_at_ms', 'mysql', lane)}")
    if not table.has_unique(theirs(lane, "app_code"), theirs(lane, "event_id")):
        index = "event" if "event" not in table.indexes else "outboxd_event"
        columns = f"{column_of(lane, 'app_code')}, {column_of(lane, 'event_id')}"
        yield Step("alter", f"ALTER TABLE {name} ADD UNIQUE KEY {index} ({columns})", f"{lane.name}: building an index")
    if "due" not in table.indexes and not lane.is_ordered:
        columns = column_of(lane, "due_at_ms")
        yield Step("alter", f"ALTER TABLE {name} ADD KEY due ({columns})", f"{lane.name}: building an index")


def fresh_mysql(lane: Lane) -> list[str]:
    """The statements that make a lane's table where there is none."""
    return [statement(name, "mysql", lane) for name in ("lane", *(ORDER_STATEMENTS if lane.is_ordered else ()))]


def _order_steps(lane: Lane, names: Iterable[str]) -> Iterator[Step]:
    """What keeps the order of rooms."""
    for name in names:
        kind = "insert" if name == "write_partitions" else "alter"
        says = f"{lane.name}: building an index" if name == "partition_index" else ""
        yield Step(kind, statement(name, "mysql", lane), says)


def spare_index(table: Table | None, lane: Lane) -> Iterator[str]:
    """What is told of an index that nobody reads. Daemons that know the lane as it was before read it still: so it is
    not dropped here.
    """
    spare = "due" if lane.is_ordered else "rooms"
    if table is not None and spare in table.indexes:
        drop = f"ALTER TABLE {statements.quoted(lane.name, 'mysql')} DROP KEY {spare}"
        yield (
            f"{lane.name}: with `ordering: {lane.ordering}` its index {spare} only makes every event dearer; once all "
            f"daemons are started anew: {drop}"
        )


def nulls_trigger(lane: Lane) -> str:
    """The trigger's name that keeps INSERTs which write NULL working."""
    return f"{lane.name[:50]}_nulls"


def _trigger_sql(lane: Lane, nullable: Sequence[str]) -> str:
    # Without it an older producer that writes worker_id NULL would fail, and its transaction with it.
    values = []
    for ours in nullable:
        default = statements.NOW["mysql"] if ours == "created_at_ms" else default_of(ours)
        values.append(f"NEW.{column_of(lane, ours)} = COALESCE(NEW.{column_of(lane, ours)}, {default})")
    name, table = statements.quoted(nulls_trigger(lane), "mysql"), statements.quoted(lane.name, "mysql")
    return f"CREATE TRIGGER {name} BEFORE INSERT ON {table} FOR EACH ROW SET {', '.join(values)}"
