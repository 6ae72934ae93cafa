"""What an older table holds, and why it cannot be migrated as it is. Nothing here changes anything."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from outboxd.config.schema import ROOM_PARTITION, Lane
from outboxd.store import statements
from outboxd.store.connection import Connection
from outboxd.store.migrate_table import RULES, Column, Table, fits, indexes_for, width_for
from outboxd.store.migrations import columns_for, theirs

KNOWN = frozenset({"pending", "delivering", "delivered", "retryable", "failed"})
STRAY = {"published": "delivered"}
"""Statuses that older services wrote, and what they mean."""

REQUIRED = ("id", "event_id", "event_type", "room_id", "envelope")
"""What a producer writes: not to be made up."""

FILLED = ("app_code", "event_type", "room_id", "content_type", "status", "worker_id", "claim_token", "lock_until_ms",
          "retry_count", "next_retry_at_ms", "created_at_ms", "updated_at_ms", "delivered_at_ms")  # fmt: skip
"""Columns where a NULL becomes the default. An event without event_id or envelope is for a person to decide about."""

SHOWN = 5
_CLAIMABLE = "'pending', 'retryable'"


@dataclass(frozen=True, slots=True)
class Facts:
    """statuses: rows by status as written. nulls, too_long: rows by our column. stray_errors, stray_workers: rows whose
    last_error or worker_id will be cut. odd_ids: rows whose event_id is not ASCII. leased: delivering rows whose lease
    still runs. idle_locks: rows that nobody holds under such a lease. duplicates: (app_code, event_id, rows), a few.
    """

    statuses: Mapping[str | None, int]
    nulls: Mapping[str, int]
    too_long: Mapping[str, int]
    stray_errors: int = 0
    stray_workers: int = 0
    odd_ids: int = 0
    leased: int = 0
    idle_locks: int = 0
    duplicates: tuple[tuple[str, str, int], ...] = ()

    @property
    def rows(self) -> int:
        return sum(self.statuses.values())

    @property
    def to_fix(self) -> int:
        """Rows, counted once for each thing to be changed before the columns can be."""
        stray = sum(count for status, count in self.statuses.items() if status in STRAY)
        nulls = sum(self.nulls.get(name, 0) for name in FILLED)
        return stray + self.stray_errors + self.stray_workers + self.idle_locks + nulls


def column_of(lane: Lane, ours: str) -> str:
    """Our column's name in the lane's table, quoted."""
    return statements.quoted(theirs(lane, ours), "mysql")


def converted(table: Table, lane: Lane) -> Mapping[str, Column]:
    """The columns that are there and not as ours must be."""
    found = {ours: table.column(lane, ours) for ours in RULES}
    return {ours: column for ours, column in found.items() if column is not None and not fits(ours, column)}


def facts_of(connection: Connection, table: Table, lane: Lane) -> Facts:
    """One scan of the table for the columns to be converted, and one to group its statuses."""
    sums: dict[tuple[str, str], str] = {}
    for ours, column in converted(table, lane).items():
        name = column_of(lane, ours)
        if column.nullable and not RULES[ours].nullable:
            sums["null", ours] = f"{name} IS NULL"
        if ours == "last_error":
            sums["long_error", ours] = f"CHAR_LENGTH({name}) > {RULES[ours].size}"
        elif ours == "worker_id":
            sums["odd_worker", ours] = _is_odd_worker(name)
        elif RULES[ours].is_key or ours in {"content_type", "published_to"}:
            sums["long", ours] = f"CHAR_LENGTH({name}) > {width_for(ours, column)}"
        if ours == "event_id":
            sums["odd_id", ours] = f"LENGTH(CONVERT({name} USING utf8mb4)) <> CHAR_LENGTH({name})"
    counts = _sums(connection, lane, sums)
    return Facts(
        statuses=_statuses(connection, table, lane),
        nulls={ours: count for (what, ours), count in counts.items() if what == "null" and count},
        too_long={ours: count for (what, ours), count in counts.items() if what == "long" and count},
        stray_errors=counts.get(("long_error", "last_error"), 0),
        stray_workers=counts.get(("odd_worker", "worker_id"), 0),
        odd_ids=counts.get(("odd_id", "event_id"), 0),
        leased=_locked(connection, table, lane, "'delivering'"),
        idle_locks=_locked(connection, table, lane, _CLAIMABLE),
        duplicates=_duplicates(connection, table, lane),
    )


def _is_odd_worker(name: str) -> str:
    return f"(CHAR_LENGTH({name}) > 64 OR LENGTH(CONVERT({name} USING utf8mb4)) <> CHAR_LENGTH({name}))"


def fix_of(table: Table, lane: Lane) -> tuple[str, str]:
    """(assignments, condition) of an UPDATE that leaves nothing for the conversion to stumble over."""
    assign: list[str] = []
    when: list[str] = []
    if _has_locks(table, lane):
        # An older worker looked at the lock of delivering rows only; a claim of ours passes over every locked row.
        idle, lock = _is_locked(lane, _CLAIMABLE), column_of(lane, "lock_until_ms")
        assign.append(f"{lock} = IF({idle}, 0, COALESCE({lock}, 0))")
        when.append(idle)
    for ours, column in converted(table, lane).items():
        name, value = column_of(lane, ours), column_of(lane, ours)
        if ours == "worker_id":
            value = f"IF({_is_odd_worker(name)}, '', {name})"
            when.append(_is_odd_worker(name))
        elif ours == "last_error":
            value = f"LEFT({name}, {RULES[ours].size})"
            when.append(f"CHAR_LENGTH({name}) > {RULES[ours].size}")
        elif ours == "status":
            for stray, meant in STRAY.items():
                value = f"IF({name} = '{stray}', '{meant}', {value})"
                when.append(f"{name} = '{stray}'")
        if column.nullable and ours in FILLED and ours != "status":
            value = f"COALESCE({value}, {default_of(ours)})"
            when.append(f"{name} IS NULL")
        if value != name and ours != "lock_until_ms":
            assign.append(f"{name} = {value}")
    return ", ".join(assign), " OR ".join(when)


def default_of(ours: str) -> str:
    """What a NULL becomes, as SQL."""
    default = RULES[ours].default
    return default if default and default.isdigit() else "0" if ours.endswith("_ms") else f"'{default or ''}'"


def _sums(connection: Connection, lane: Lane, sums: Mapping[tuple[str, str], str]) -> Mapping[tuple[str, str], int]:
    if not sums:
        return {}
    wanted = ", ".join(f"SUM({condition})" for condition in sums.values())
    row = connection.query(f"SELECT {wanted} FROM {statements.quoted(lane.name, 'mysql')}")[0]
    return {key: int(value or 0) for key, value in zip(sums, row, strict=True)}


def _statuses(connection: Connection, table: Table, lane: Lane) -> Mapping[str | None, int]:
    quoted = statements.quoted(lane.name, "mysql")
    if table.column(lane, "status") is None:
        return {"pending": int(connection.query(f"SELECT COUNT(*) FROM {quoted}")[0][0])}
    name = column_of(lane, "status")
    found: dict[str | None, int] = {}
    for status, count in connection.query(f"SELECT {name}, COUNT(*) FROM {quoted} GROUP BY {name}"):
        key = None if status is None else str(status).strip().lower()
        found[key] = found.get(key, 0) + int(count)
    return found


def _locked(connection: Connection, table: Table, lane: Lane, statuses: str) -> int:
    if not _has_locks(table, lane):
        return 0
    condition = _is_locked(lane, statuses)
    return int(
        connection.query(f"SELECT COUNT(*) FROM {statements.quoted(lane.name, 'mysql')} WHERE {condition}")[0][0]
    )


def _has_locks(table: Table, lane: Lane) -> bool:
    return table.column(lane, "status") is not None and table.column(lane, "lock_until_ms") is not None


def _is_locked(lane: Lane, statuses: str) -> str:
    now = statements.NOW["mysql"]
    return f"({column_of(lane, 'status')} IN ({statuses}) AND {column_of(lane, 'lock_until_ms')} > {now})"


def _duplicates(connection: Connection, table: Table, lane: Lane) -> tuple[tuple[str, str, int], ...]:
    app, event_id = table.column(lane, "app_code"), theirs(lane, "event_id")
    if table.has_unique(event_id) or (app and not app.nullable and table.has_unique(app.name, event_id)):
        return ()
    # Compared as the new key will compare: by bytes.
    app_code = f"COALESCE({_exact(column_of(lane, 'app_code'))}, '')" if app else "''"
    rows = connection.query(
        f"SELECT {app_code} AS a, {_exact(column_of(lane, 'event_id'))} AS e, COUNT(*) "
        f"FROM {statements.quoted(lane.name, 'mysql')} GROUP BY a, e HAVING COUNT(*) > 1 LIMIT {SHOWN}"
    )
    return tuple((str(a), str(e), int(count)) for a, e, count in rows if e is not None)


def _exact(name: str) -> str:
    return f"CONVERT({name} USING utf8mb4) COLLATE utf8mb4_bin"


def problems(table: Table, lane: Lane, may_be_added: Collection[str] = ()) -> Iterator[str]:
    """What is wrong with the table's make, whatever it holds. may_be_added: our names of columns that need not be there
    though `columns` names them.
    """
    for ours, name in lane.columns.items():
        if ours != ROOM_PARTITION and name.lower() not in table.columns and ours not in may_be_added:
            hint = "" if may_be_added or ours in REQUIRED[1:] else "; `init-db --adopt` would add it"
            yield f"it has no column {name}, which `columns` names for {ours}{hint}"
    for ours in REQUIRED:
        if ours not in lane.columns and table.column(lane, ours) is None:
            hint = ", or let `init-db --adopt` add one" if ours == "id" else ""
            yield f"it has no column {ours}: name the one that holds it under `columns`{hint}"
    primary = table.indexes.get("PRIMARY")
    if primary is None or [name.lower() for name in primary.columns] != [theirs(lane, "id").lower()]:
        yield f"its primary key is not {theirs(lane, 'id')} alone"
    for ours, rule in RULES.items():
        column = table.column(lane, ours)
        if column is not None and column.data_type not in rule.types | rule.becomes:
            yield f"its column {column.name} is {column.column_type}, which cannot become our {ours}{_instead(ours)}"
    for column in converted(table, lane).values():
        if column.name.lower() in table.foreign:
            yield f"its column {column.name} has to be converted and is part of a foreign key: drop that key"
    for ours in columns_for(lane):
        column = table.column(lane, ours)
        if ours not in RULES and column is not None and "GENERATED" not in column.extra:
            yield f"its column {column.name} is not generated: rename it"
    for name, wanted in indexes_for(lane).items():
        index = table.indexes.get(name)
        if index is not None and [name.lower() for name in index.columns] != wanted:
            yield f"its index {name} is on ({', '.join(index.columns)}): rename it"


def _instead(ours: str) -> str:
    """What to do about a column of another meaning that has one of our names."""
    if ours in REQUIRED:
        return ""
    return f", name ours otherwise under `columns`, e.g. `{ours}: relay_{ours}`, and use `init-db --adopt`"


def refusals(facts: Facts) -> Iterator[str]:
    """What is wrong with the rows."""
    unknown = {status: count for status, count in facts.statuses.items() if status not in KNOWN and status not in STRAY}
    if unknown:
        listed = ", ".join(f"{status!r} ({count:,} rows)" if status is not None else f"NULL ({count:,} rows)"
                           for status, count in sorted(unknown.items(), key=lambda item: -item[1]))  # fmt: skip
        known = "pending, retryable, delivered or failed"
        yield f"status holds {listed}: set these rows to {known}, or, if it means something else{_instead('status')}"
    for ours in ("event_id", "envelope"):
        if facts.nulls.get(ours):
            yield f"{ours} is NULL in {facts.nulls[ours]:,} rows: fill it or delete these rows"
    for ours, count in facts.too_long.items():
        yield f"{ours} is longer than its column will be in {count:,} rows: shorten it"
    if facts.duplicates:
        listed = ", ".join(f"{e!r} (app_code {a!r}, {count} rows)" for a, e, count in facts.duplicates)
        more = " and perhaps more" if len(facts.duplicates) == SHOWN else ""
        yield f"event_id is not unique within its app_code: {listed}{more}: decide which row of each stays"
