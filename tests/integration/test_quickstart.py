"""docs/quickstart.md and docs/consumers.md: what they give to copy runs as it stands."""

import json
import os
import re
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import MySQLdb
import pytest

from outboxd import inbox
from tests.services import children
from tests.services.find import free_port
from tests.services.mariadb import connect
from tests.services.wait import wait_for

ROOT = Path(__file__).parents[2]
QUICKSTART = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
CONSUMERS = (ROOT / "docs" / "consumers.md").read_text(encoding="utf-8")
LIMIT_S = 30.0


def blocks(text: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


class Reader:
    """Somebody who copies the page into files and types its commands."""

    def __init__(self, directory: Path, environ: dict[str, str]) -> None:
        self.directory = directory
        self.shop_port, self.warehouse_port = free_port(), free_port()
        self._stack = ExitStack()
        usual = {name: value for name, value in os.environ.items() if not name.startswith("OUTBOXD_")}
        self._environ = {**usual, "PYTHONPATH": str(ROOT), **environ}
        shop, warehouse = blocks(QUICKSTART, "python")
        (yaml,) = blocks(QUICKSTART, "yaml")
        sections = {"node_id": "node", "admin": {"listen": "", "socket": str(directory / "admin.sock")}}
        own = "".join(f"{name}: {json.dumps(value)}\n" for name, value in sections.items())
        self._write("shop.py", shop)
        self._write("warehouse.py", warehouse)
        self._write("outbox.yaml", own + yaml.replace(":9000", f":{self.warehouse_port}"))

    def _write(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text, encoding="utf-8")

    def patch(self) -> None:
        """Do what the page's diff says."""
        (diff,) = blocks(QUICKSTART, "diff")
        text = (self.directory / "shop.py").read_text(encoding="utf-8")
        for part in diff.split("@@\n"):
            lines = part.splitlines()
            before = "\n".join(line[1:] for line in lines if not line.startswith("+"))
            assert text.count(before) == 1, f"the page's own code has no such place: {before}"
            text = text.replace(before, "\n".join(line[1:] for line in lines))
        self._write("shop.py", text)

    def run(self, *arguments: str) -> str:
        """An outboxd command of the page."""
        done = subprocess.run(
            [sys.executable, "-m", "outboxd", "--config", "outbox.yaml", *arguments],
            cwd=self.directory, env=self._environ, capture_output=True, text=True, timeout=LIMIT_S, check=True,
        )  # fmt: skip
        return done.stdout

    def start(self, name: str, *arguments: str) -> "subprocess.Popen[bytes]":
        """A process in a terminal of its own; what it prints is in a file of that name."""
        command = [sys.executable, "-m", *arguments]
        process = children.start(command, self.directory / f"{name}.log", cwd=self.directory, environ=self._environ)
        self._stack.callback(children.stop, process)
        return process

    def printed(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text(encoding="utf-8")

    def order(self, item: str) -> None:
        """The page's curl."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.shop_port}/orders",
            data=json.dumps({"item": item}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            assert answer.status == 201

    def close(self) -> None:
        self._stack.close()


@pytest.fixture(params=["sqlite", "mysql"])
def reader(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reader]:
    environ: dict[str, str] = {}
    if request.param == "mysql":
        url: str = request.getfixturevalue("mysql_url")
        environ = {"SHOP_DATABASE": url.replace("mysql://", "mysql+mysqldb://"), "SHOP_OUTBOX": url}
        assert all(f"export {name}=" in QUICKSTART for name in environ)
    made = Reader(tmp_path, environ)
    yield made
    made.close()


def test_an_order_arrives_by_the_page_alone(reader: Reader) -> None:
    """From the application as it was to an event that survives an outage, as somebody new would go about it."""
    assert "room_outbox: created" in reader.run("init-db")
    reader.patch()
    warehouse = ("flask", "--app", "warehouse", "run", "--port", str(reader.warehouse_port))
    serving = reader.start("warehouse", *warehouse)
    reader.start("outboxd", "outboxd", "--config", "outbox.yaml")
    reader.start("shop", "flask", "--app", "shop", "run", "--port", str(reader.shop_port))
    wait_for(lambda: "Running on" in reader.printed("shop"), LIMIT_S, "the shop")
    wait_for(lambda: "Running on" in reader.printed("warehouse"), LIMIT_S, "the warehouse")
    reader.order("lamp")
    wait_for(lambda: 'OrderPlaced {"item":"lamp"}' in reader.printed("warehouse"), LIMIT_S, "the first event")
    children.stop(serving)
    reader.order("chair")
    assert "room_outbox" in reader.run("status")
    reader.start("warehouse-again", *warehouse)
    wait_for(lambda: 'OrderPlaced {"item":"chair"}' in reader.printed("warehouse-again"), LIMIT_S, "the second one")


def test_a_consumers_function_does_each_event_once(mysql_url: str, sqlite_url: str) -> None:
    """Its Python, on both databases."""
    (code,) = blocks(CONSUMERS, "python")
    for url in (mysql_url, sqlite_url):
        space: dict[str, Any] = {}
        is_sqlite = url.startswith("sqlite")
        exec(code.replace("%s", "?") if is_sqlite else code, space)  # the document's own code
        dialect = "sqlite" if is_sqlite else "mysql"
        link: Any = sqlite3.connect(url.removeprefix("sqlite:///")) if is_sqlite else connect(url)
        with closing(link) as connection:
            cursor = connection.cursor()
            cursor.execute(inbox.table_sql(dialect))
            cursor.execute("CREATE TABLE account (room_id VARCHAR(64), coins INT)")
            cursor.execute("INSERT INTO account VALUES ('room-42', 10)")
            connection.commit()
            if not is_sqlite:
                connection.autocommit(False)
            for event_id in ("event-1", "event-1", "event-2"):
                space["book"](connection, event_id, "room-42", 2)
            cursor.execute("SELECT coins FROM account")
            assert cursor.fetchall()[0][0] == 6


def test_a_consumers_sql_does_each_event_once(mysql_url: str) -> None:
    """From any language: its statements as they stand, the table among them."""
    table, each, clean = blocks(CONSUMERS, "sql")
    assert table.strip() == inbox.table_sql("mysql")
    with closing(connect(mysql_url)) as connection, closing(connection.cursor()) as cursor:
        for statement in (table, "CREATE TABLE account (room_id VARCHAR(64), coins INT)"):
            cursor.execute(statement)
        cursor.execute("INSERT INTO account VALUES ('room-42', 10), ('room-43', 10)")
        for _ in range(2):
            run(cursor, each)
        cursor.execute("SELECT room_id, coins FROM account ORDER BY room_id")
        assert cursor.fetchall() == (("room-42", 8), ("room-43", 10))
        run(cursor, clean)
        cursor.execute("UPDATE outboxd_inbox SET done_at_ms = 1")
        run(cursor, clean)
        cursor.execute("SELECT COUNT(*) FROM outboxd_inbox")
        assert cursor.fetchall() == ((0,),)


def run(cursor: MySQLdb.cursors.Cursor, script: str) -> None:
    for statement in script.split(";\n"):
        if statement.strip():
            cursor.execute(statement)
