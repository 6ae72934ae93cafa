"""A mysqlclient session as the store wants it: bounded, in UTC, READ COMMITTED, its errors translated by number."""

import contextlib
import math
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import MySQLdb
from MySQLdb.constants import CLIENT

from outboxd.config.schema import Database
from outboxd.errors import CommitInDoubt, StoreConflict, StoreError, StoreRefused, StoreUnavailable
from outboxd.store.connection import NO_PARAMS, Params, Row, no_beat

# Numbers: MySQL's and MariaDB's error references. Classes of the driver say nothing: 1054 is an OperationalError too.
CONFLICT = frozenset({
    1020, 1205, 1213, 1412,  # record changed, lock wait, deadlock, table definition changed: repeat the transaction
    3101, 3572,  # rolled back by group replication, NOWAIT
})  # fmt: skip
AWAY = frozenset({
    1021, 1026, 1030, 1114,  # disk full, writing a file, storage engine, table full
    1037, 1041, 1135, 1206,  # no memory, no resources, no thread, no room for locks
    1598, 1878,  # binary log (ends the server, too), temporary file
    1040, 1203, 1226,  # too many connections, of this user, resources of this user
    1047, 1053, 1180,  # Galera not ready, shutdown, error at COMMIT
    1158, 1159, 1160, 1161,  # network read and write
    1290, 1792, 1836,  # read-only: a fail-over; the connection is dropped, the next one finds the writer
    1317, 1927, 1969, 3024, 4031,  # interrupted, killed, statement limit, idle time
    2002, 2003, 2005, 2006, 2013, 2026, 2055,  # connect, unknown host, gone, lost, TLS, lost with a system error
})  # fmt: skip
FIRST_OF_THE_SERVER = 1000
"""Numbers below are the operating system's refusals: the server could not write, open or delete a file of its own, as
when the disk of its temporary tables is full."""
ENCRYPTED = frozenset({"REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY"})
REMEDY = {
    1044: "grant the user access to the database (docs/operations.md lists the grants)",
    1045: "check the user and password of database.url, or database.password_file",
    1049: "create the database, or correct its name in database.url",
    1054: "run `outboxd init-db` to bring the table up to date",
    1142: "grant the user this right (docs/operations.md lists the grants)",
    1143: "grant the user this right (docs/operations.md lists the grants)",
    1146: "run `outboxd init-db` to create the tables",
    1176: "run `outboxd init-db` to bring the table up to date",
    1698: "check the user and password of database.url, or database.password_file",
}
_PARAM = re.compile(r":(?<![:\w]:)([a-z_]+)\b")
"""The colon first, which the search can look for: else it tries at every digit of a list of ids."""


@lru_cache(maxsize=512)
def _driver_form(sql: str) -> str:
    return _PARAM.sub(r"%(\1)s", sql.replace("%", "%%"))


def translated(error: Exception, doing: str) -> StoreError:
    """Our own error for a driver's, by its number; `doing` says what failed."""
    number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = f"{doing}: {error.args[1] if len(error.args) > 1 else error} ({number})"
    if number in CONFLICT:
        return StoreConflict(text)
    closed = number == 0 and isinstance(error, MySQLdb.InterfaceError)
    if number in AWAY or 0 < number < FIRST_OF_THE_SERVER or closed:
        return StoreUnavailable(text)
    return StoreRefused(f"{text}; {REMEDY[number]}" if number in REMEDY else text)


class MysqlConnection:
    """Implements store.connection.Connection.

    strict: values that do not fit their column are refused. The relay's sessions are not: what it writes (an error's
    text into a column that knows no emoji) is cut or replaced by the server, and one odd row stops nobody.
    beat: called before every statement.
    """

    dialect = "mysql"

    def __init__(self, database: Database, strict: bool = True, beat: Callable[[], None] = no_beat) -> None:
        self._beat = beat
        self._where = f"{database.host}:{database.port}/{database.name}"
        # The server gives up before the client does, so that a limit ends a statement and not the session.
        limit_s = max(1.0, database.statement_timeout_s * 0.8)
        try:
            self._link = MySQLdb.connect(**_arguments(database))
            self.server = self._link.get_server_info()
            self.mariadb = "mariadb" in self.server.lower()
            self._cursor = self._link.cursor()
            beat()
            self._cursor.execute(_session(limit_s, self.mariadb, strict))
            is_secret = not database.ssl_mode or database.ssl_mode not in ENCRYPTED or self._is_encrypted()
        except MySQLdb.Error as error:
            raise translated(error, f"cannot connect to the database {self._where}") from error
        if not is_secret:
            self.close()
            raise StoreRefused(
                f"the database {self._where} speaks no TLS, which ssl_mode={database.ssl_mode} asks for: switch it on "
                "at the server, or say ssl_mode=DISABLED in database.url"
            )
        _keep_alive(self._link)
        self._open_transaction = False

    def _is_encrypted(self) -> bool:
        """Is the session? The client library takes REQUIRED for a wish, and goes on without TLS."""
        self._cursor.execute("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
        return bool(self._cursor.fetchall()[0][1])

    @property
    def version(self) -> str:
        """The server's version as it tells it."""
        return str(self.server)

    def query(self, sql: str, params: Params = NO_PARAMS) -> Sequence[Row]:
        self._run(sql, params)
        rows: Sequence[Row] = self._cursor.fetchall()
        return rows

    def execute(self, sql: str, params: Params = NO_PARAMS) -> int:
        self._run(sql, params)
        return int(self._cursor.rowcount)

    def _run(self, sql: str, params: Params) -> None:
        self._beat()
        try:
            self._cursor.execute(_driver_form(sql), params if isinstance(params, dict) else dict(params))
        except MySQLdb.Error as error:
            failure = translated(error, "the database failed")
            if isinstance(failure, StoreConflict):
                self.rollback()
            raise failure from error

    def begin(self) -> None:
        self._run("START TRANSACTION", NO_PARAMS)
        self._open_transaction = True

    def commit(self) -> None:
        self._open_transaction = False
        self._beat()
        try:
            self._link.commit()
        except MySQLdb.Error as error:
            failure = translated(error, "COMMIT failed")
            raise CommitInDoubt(str(failure)) if isinstance(failure, StoreUnavailable) else failure from error

    def rollback(self) -> None:
        if self._open_transaction:
            self._open_transaction = False
            self._beat()
            with contextlib.suppress(MySQLdb.Error):  # a broken connection has rolled back by itself
                self._link.rollback()

    def ping(self) -> None:
        self._run("DO 1", NO_PARAMS)

    def close(self) -> None:
        with contextlib.suppress(MySQLdb.Error):  # closing what is broken or closed
            self._link.close()


def _arguments(database: Database) -> Mapping[str, Any]:
    wait_s = max(1, math.ceil(database.statement_timeout_s))
    arguments: dict[str, Any] = {
        "host": database.host,
        "port": database.port,
        "user": database.user,
        "password": database.password or "",
        "database": database.name,
        "connect_timeout": max(1, math.ceil(database.connect_timeout_s)),
        "read_timeout": wait_s,
        "write_timeout": wait_s,
        "charset": "utf8mb4",
        "autocommit": True,
        # Matched rows, not changed ones: an UPDATE that changes nothing must not look like a lost lease.
        "client_flag": CLIENT.FOUND_ROWS,
        "local_infile": 0,
        "init_command": "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    }
    if database.unix_socket:
        arguments["unix_socket"] = database.unix_socket
    if database.ssl_mode:
        arguments["ssl_mode"] = database.ssl_mode
    files = {"ca": database.ssl_ca, "cert": database.ssl_cert, "key": database.ssl_key}
    if any(files.values()):
        arguments["ssl"] = {name: path for name, path in files.items() if path}
    return arguments


def _session(limit_s: float, mariadb: bool, strict: bool) -> str:
    lock_s = max(1, int(limit_s) // 2)
    mode = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION" if strict else "NO_ENGINE_SUBSTITUTION"
    limit = f"max_statement_time = {limit_s:.3f}" if mariadb else f"max_execution_time = {int(limit_s * 1000)}"
    return (
        f"SET SESSION time_zone = '+00:00', sql_mode = '{mode}', wait_timeout = 30, "
        f"innodb_lock_wait_timeout = {lock_s}, lock_wait_timeout = {lock_s}, {limit}"
    )


def _keep_alive(link: "MySQLdb.connections.Connection") -> None:
    """A peer that vanished is noticed within about a minute, not after the kernel's two hours."""
    with contextlib.suppress(OSError), socket.socket(fileno=socket.dup(link.fileno())) as duplicate:
        duplicate.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if duplicate.family != socket.AF_UNIX:
            duplicate.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 20)
            duplicate.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
            duplicate.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
