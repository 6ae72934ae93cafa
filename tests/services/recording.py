"""A connection to the database that counts what its transactions delete."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from outboxd.store.connection import NO_PARAMS, Connection, Params, Row


@dataclass
class Recording:
    """A Connection that passes everything on, and remembers how many rows each transaction deleted."""

    connection: Connection
    deleted: list[int] = field(default_factory=list)
    in_transaction: int = 0

    @property
    def dialect(self) -> str:
        return self.connection.dialect

    def query(self, sql: str, params: Params = NO_PARAMS) -> Sequence[Row]:
        return self.connection.query(sql, params)

    def execute(self, sql: str, params: Params = NO_PARAMS) -> int:
        count = self.connection.execute(sql, params)
        self.in_transaction += count if sql.startswith("DELETE") else 0
        return count

    def begin(self) -> None:
        self.connection.begin()
        self.in_transaction = 0

    def commit(self) -> None:
        self.connection.commit()
        self.deleted.append(self.in_transaction)

    def rollback(self) -> None:
        self.connection.rollback()

    def ping(self) -> None:
        self.connection.ping()

    def close(self) -> None:
        self.connection.close()
