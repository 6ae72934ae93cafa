"""Applications that record events, each through a driver of its own."""

import functools
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import MySQLdb
import pymysql
import sqlalchemy
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from outboxd.config.schema import Config
from tests.services.lanes import Table, table_of

STATE = "CREATE TABLE room (room_id VARCHAR(64) NOT NULL PRIMARY KEY, title VARCHAR(64) NOT NULL)"
"""What an application changes, beside the outbox."""


@dataclass(frozen=True)
class Caller:
    """One session. where: what it hands to `record`; run: a statement of its own, without parameters."""

    where: Any
    run: Callable[[str], object]
    commit: Callable[[], object]
    rollback: Callable[[], object]

    def change(self, room_id: str, title: str = "hello") -> None:
        """Write a room, in the transaction that is open."""
        self.run(f"INSERT INTO room (room_id, title) VALUES ('{room_id}', '{title}')")


def arguments(url: str) -> dict[str, Any]:
    """Of a MySQL driver's connect."""
    parts = urlsplit(url)
    return {
        "host": parts.hostname, "port": parts.port, "user": parts.username, "database": parts.path.strip("/"),
        "charset": "utf8mb4",
    }  # fmt: skip


def connector(kind: str, url: str) -> Callable[[], Any]:
    """Opens a DB-API connection. kind: mysqlclient, pymysql or sqlite3."""
    if kind == "sqlite3":
        return functools.partial(sqlite3.connect, url.removeprefix("sqlite:///"), timeout=10)
    driver: Any = MySQLdb if kind == "mysqlclient" else pymysql
    return functools.partial(driver.connect, **arguments(url))


def engine_of(kind: str, url: str) -> sqlalchemy.Engine:
    """SQLAlchemy's. kind: mysqlclient, pymysql or sqlite3."""
    scheme = {"mysqlclient": "mysql+mysqldb", "pymysql": "mysql+pymysql", "sqlite3": "sqlite"}[kind]
    suffix = "" if kind == "sqlite3" else "?charset=utf8mb4"
    return sqlalchemy.create_engine(scheme + url[url.index(":") :] + suffix)


DBAPI = ("mysqlclient", "pymysql", "sqlite3")
WAYS = ("connection", "cursor", "Connection", "Session", "scoped_session")
CALLERS = [(driver, way) for driver in DBAPI for way in WAYS]


@contextmanager
def caller(driver: str, way: str, url: str) -> Iterator[Caller]:
    """An application with that driver. way: of WAYS; those in lower case are the driver's own."""
    if way in ("connection", "cursor"):
        connection = connector(driver, url)()
        cursor = connection.cursor()
        try:
            where = cursor if way == "cursor" else connection
            yield Caller(where, cursor.execute, connection.commit, connection.rollback)
        finally:
            connection.close()
        return
    engine = engine_of(driver, url)
    try:
        yield from _sqlalchemy(engine, way)
    finally:
        engine.dispose()


def _sqlalchemy(engine: sqlalchemy.Engine, way: str) -> Iterator[Caller]:
    made: Any
    if way == "Connection":
        made = engine.connect()
    elif way == "Session":
        made = Session(engine)
    else:
        made = scoped_session(sessionmaker(engine))

    def run(sql: str) -> object:
        return made.execute(sqlalchemy.text(sql))

    try:
        yield Caller(made, run, made.commit, made.rollback)
    finally:
        made.close()


@contextmanager
def application(config: Config) -> Iterator[Table]:
    """The lane's table, made by init-db, and the application's own beside it."""
    with table_of(config) as table:
        table.connection.execute(STATE)
        yield table


def rooms(table: Table) -> int:
    """How many the application has committed."""
    return int(table.connection.query("SELECT COUNT(*) FROM room")[0][0])
