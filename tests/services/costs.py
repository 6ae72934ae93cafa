"""What the relay costs its database, by the server's own counters."""

from tests.services.lanes import Table

COUNTERS = (
    "Com_select", "Com_update", "Com_update_multi", "Com_commit", "Com_begin", "Com_rollback", "Questions",
    "Handler_read_key", "Handler_read_next", "Handler_read_rnd_next", "Handler_update",
)  # fmt: skip


def counters(table: Table) -> dict[str, int]:
    """Of the server, since it was started."""
    names = ", ".join(f"'{name}'" for name in COUNTERS)
    found = table.connection.query(f"SHOW GLOBAL STATUS WHERE Variable_name IN ({names})")
    return {str(name): int(value) for name, value in found}
