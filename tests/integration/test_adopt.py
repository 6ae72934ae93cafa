"""`outboxd init-db --adopt`: a table of another make becomes a lane's. MySQL and MariaDB only."""

import re
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from tests.services.cli import Cli
from tests.services.daemon import write_config
from tests.services.mariadb import connect
from tests.services.receiver import Receiver

DEBEZIUM = """CREATE TABLE room_outbox (
  id {id} NOT NULL PRIMARY KEY, aggregatetype VARCHAR(255) NOT NULL, aggregateid VARCHAR(255) NOT NULL,
  type VARCHAR(255) NOT NULL, payload JSON NOT NULL) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4"""
COLUMNS = {
    "id": "outboxd_id", "event_id": "id", "event_type": "type", "room_id": "aggregateid", "envelope": "payload",
}  # fmt: skip
INSERT = "INSERT INTO room_outbox (id, aggregatetype, aggregateid, type, payload) VALUES (%s, 'order', %s, %s, %s)"


class Table:
    """A table that another relay reads, and its lane's configuration."""

    def __init__(self, directory: Path, url: str, receiver: Receiver) -> None:
        self.link = connect(url)
        self._directory, self._url, self._receiver = directory, url, receiver
        self.configure(COLUMNS)

    def configure(self, columns: dict[str, str], lane: str = "room_outbox", **settings: object) -> None:
        path = self._directory / "outbox.yaml"
        publishers = {"webhook": {"type": "http", "url": self._receiver.url}}
        write_config(path, self._url, publishers, lanes={lane: {"columns": columns, **settings}})
        self.cli = Cli(self._directory, path)

    def run(self, sql: str, params: object = None) -> list[tuple[object, ...]]:
        with closing(self.link.cursor()) as cursor:
            cursor.execute(sql, params)
            return list(cursor.fetchall())

    def insert(self, payload: str = '{"a": 1}', order: str = "order-1") -> str:
        """As the application always has."""
        event_id = str(uuid.uuid4())
        self.run(INSERT, (event_id, order, "OrderPlaced", payload))
        return event_id

    def relay(self) -> None:
        """Until nothing is left."""
        assert self.cli("run", "--until-empty").status == 0

    def received(self) -> dict[str, bytes]:
        """Bodies by event_id."""
        return {request.headers["ce-id"]: request.body for request in self._receiver.requests}

    def make(self) -> str:
        return str(self.run("SHOW CREATE TABLE room_outbox")[0][1])


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as running:
        yield running


@pytest.fixture
def table(tmp_path: Path, mysql_url: str, receiver: Receiver) -> Iterator[Table]:
    made = Table(tmp_path, mysql_url, receiver)
    with closing(made.link):
        yield made


@pytest.mark.parametrize("kind", ["CHAR(36)", "VARCHAR(36) CHARACTER SET latin1", "UUID"])
def test_a_table_in_debeziums_layout_is_relayed_after_one_command(table: Table, kind: str) -> None:
    """The application goes on as it is: it inserts what it always has, and its events arrive."""
    if kind == "UUID" and "MariaDB" not in str(table.run("SELECT VERSION()")):
        pytest.skip("MariaDB alone has a type UUID")
    table.run(DEBEZIUM.format(id=kind))
    before = [table.insert(f'{{"n": {number}}}') for number in range(50)]
    said = table.cli("init-db", "--adopt", "--existing", "pending").ok()
    assert "has no numeric key, it gets one (outboxd_id) and is rebuilt" in said
    assert "outboxd_former_key" in said
    assert table.cli("check").status == 0
    after = [table.insert('{"n": "after", "text": "Grüße 🚀"}', "order-2") for _ in range(5)]
    table.relay()
    received = table.received()
    assert set(received) == {*before, *after}
    assert received[after[0]] == '{"n": "after", "text": "Grüße 🚀"}'.encode()
    assert table.cli("init-db").ok().count("nothing to do") == 1, "from now on it is a lane's table like any other"


def test_rows_that_were_published_elsewhere_are_not_published_again(table: Table) -> None:
    """Who comes from another relay does not want a year of events once more; what comes after is relayed."""
    table.run(DEBEZIUM.format(id="CHAR(36)"))
    for _ in range(4500):
        table.insert()
    said = table.cli("init-db", "--adopt", "--existing", "delivered").ok()
    assert "4,500 rows are delivered" in said
    assert "are pending and will be published" not in said
    assert "room_outbox: a table of another make with 4,500 rows" in said.splitlines()
    assert "older" not in said, "no worker of ours was ever at it, and nobody can say what its rows are"
    new = table.insert()
    table.relay()
    assert set(table.received()) == {new}
    assert table.run("SELECT COUNT(*) FROM room_outbox WHERE status = 'delivered'") == [(4501,)]


def test_whether_old_rows_were_published_must_be_said(table: Table) -> None:
    """Nobody can tell from the table; nothing is changed until somebody has decided. An empty one asks nothing."""
    table.run(DEBEZIUM.format(id="CHAR(36)"))
    table.insert()
    before = table.make()
    refused = table.cli("init-db", "--adopt")
    assert refused.status == 1
    assert "--existing delivered" in refused.err
    assert "--existing pending" in refused.err
    assert table.make() == before
    table.run("DELETE FROM room_outbox")
    table.cli("init-db", "--adopt").ok()


def test_without_adopt_the_table_is_left_as_it_is_and_the_option_named(table: Table) -> None:
    """A rebuilt table is nothing that an upgrade may do by the way."""
    table.run(DEBEZIUM.format(id="CHAR(36)"))
    before = table.make()
    refused = table.cli("init-db")
    assert refused.status == 1
    assert "no column outboxd_id" in refused.err
    assert "init-db --adopt" in refused.err
    assert table.make() == before
    assert table.cli("init-db", "--existing", "pending").status == 2


def test_what_is_inserted_while_the_table_is_rebuilt_is_published(table: Table) -> None:
    """Rows are delivered up to the last one that stood there when the key was made, and no further."""
    table.run(DEBEZIUM.format(id="CHAR(36)"))
    old = {table.insert() for _ in range(20_000)}
    written: list[str] = []
    stop = threading.Event()

    def produce() -> None:
        other = Table.__new__(Table)
        other.link = connect(table._url)
        with closing(other.link):
            while not stop.is_set():
                written.append(other.insert())

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        table.cli("init-db", "--adopt", "--existing", "delivered").ok()
        after = len(written)
    finally:
        stop.set()
        producer.join(30)
    table.relay()
    received = set(table.received())
    assert not received & old
    assert set(written[after + 1 :]) <= received
    marked = {str(row[0]) for row in table.run("SELECT id FROM room_outbox WHERE claim_token = 0")}
    assert marked | received == old | set(written), "each row was either there before the key, or is published"


def test_columns_of_ours_may_be_named_otherwise_and_are_made_under_that_name(table: Table) -> None:
    """The table has a status of its own that means something else."""
    table.run(
        "CREATE TABLE room_outbox (seq BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, uid CHAR(36) NOT NULL, kind "
        "VARCHAR(50) NOT NULL, stream VARCHAR(80) NOT NULL, body TEXT NOT NULL, status VARCHAR(9) NOT NULL DEFAULT 'x')"
    )
    columns = {"id": "seq", "event_id": "uid", "event_type": "kind", "room_id": "stream", "envelope": "body"}
    table.configure({**columns, "status": "relay_status"})
    assert "no column relay_status" in table.cli("init-db").err
    table.cli("init-db", "--adopt").ok()
    table.run("INSERT INTO room_outbox (uid, kind, stream, body) VALUES ('u1', 'k', 's', 'text')")
    table.relay()
    assert table.received() == {"u1": b"text"}
    assert table.run("SELECT status, relay_status FROM room_outbox") == [("x", "delivered")]


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("INT NOT NULL DEFAULT 7", "which cannot become our status, name ours otherwise"),
        ("VARCHAR(9) NOT NULL DEFAULT 'new'", "status holds 'new' (1 rows): set these rows to"),
    ],
)
def test_a_status_of_another_meaning_is_refused_with_what_to_do(table: Table, kind: str, why: str) -> None:
    """Doing what is said is all: the table is taken over, and its status is left alone."""
    table.run(DEBEZIUM.format(id="CHAR(36)"))
    table.run(f"ALTER TABLE room_outbox ADD COLUMN status {kind}")
    event_id = table.insert()
    refused = table.cli("init-db", "--adopt", "--existing", "pending")
    assert refused.status == 1
    assert why in refused.err
    assert "under `columns`, e.g. `status: relay_status`, and use `init-db --adopt`" in refused.err
    table.configure({**COLUMNS, "status": "relay_status"})
    shown = table.cli("check").out
    assert "has no column outboxd_id, " in shown
    assert "run `outboxd init-db`, with `--adopt` where the table is of another make" in shown
    table.cli("init-db", "--adopt", "--existing", "pending").ok()
    assert table.cli("check").status == 0
    table.relay()
    assert set(table.received()) == {event_id}


def test_an_adopted_table_may_be_ordered(table: Table) -> None:
    """Its rooms are the aggregates."""
    table.run(DEBEZIUM.format(id="CHAR(36)"))
    table.configure(COLUMNS, ordering="room")
    table.cli("init-db", "--adopt").ok()
    ids = [table.insert(order="one") for _ in range(20)]
    table.relay()
    assert [request.headers["ce-id"] for request in table._receiver.requests] == ids


def test_a_foreign_key_that_is_in_the_way_is_named_before_anything_is_changed(table: Table) -> None:
    """The server would refuse it half-way, with the table rebuilt already."""
    table.run(DEBEZIUM.format(id="CHAR(36)"))
    table.run("CREATE TABLE note (event CHAR(36) CHARSET utf8mb4, FOREIGN KEY (event) REFERENCES room_outbox (id))")
    before = table.make()
    refused = table.cli("init-db", "--adopt")
    assert refused.status == 1
    assert "its column id has to be converted and is part of a foreign key" in refused.err
    assert table.make() == before


def test_a_foreign_key_to_the_former_key_lives_on_where_nothing_is_converted(table: Table) -> None:
    """What other tables refer to is unique as before."""
    column = "VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL"
    table.run(DEBEZIUM.format(id=column.removesuffix(" NOT NULL")))
    table.run(f"CREATE TABLE note (event {column}, FOREIGN KEY (event) REFERENCES room_outbox (id))")
    table.cli("init-db", "--adopt").ok()
    event_id = table.insert()
    table.run("INSERT INTO note VALUES (%s)", (event_id,))
    table.relay()
    assert set(table.received()) == {event_id}


def test_the_sql_can_be_read_first(table: Table) -> None:
    """A large table is rebuilt by other means, perhaps: the SQL is all of it, and nothing has been changed."""
    table.run(DEBEZIUM.format(id="CHAR(36)"))
    table.insert()
    before = table.make()
    printed = table.cli("init-db", "--adopt", "--existing", "delivered", "--print").ok()
    assert "DROP PRIMARY KEY, ADD COLUMN `outboxd_id` BIGINT UNSIGNED NOT NULL AUTO_INCREMENT FIRST" in printed
    assert table.make() == before
    for statement in printed.split(";\n"):
        if statement.strip():
            table.run(statement)
    assert table.cli("check").status == 0
    assert table.run("SELECT status FROM room_outbox") == [("delivered",)]


def test_one_that_was_killed_before_it_had_marked_the_rows_publishes_them(table: Table) -> None:
    """What came since cannot be told from what stood there: once more is allowed, never is not."""
    table.run(DEBEZIUM.format(id="CHAR(36)"))
    old = table.insert()
    printed = table.cli("init-db", "--adopt", "--existing", "delivered", "--print").ok()
    statements = [statement for statement in printed.split(";\n") if statement.strip()]
    (mark,) = [place for place, statement in enumerate(statements) if statement.startswith("UPDATE")]
    for statement in statements[:mark]:
        table.run(statement)
    new = table.insert()
    table.cli("init-db", "--adopt", "--existing", "delivered").ok()
    table.relay()
    assert set(table.received()) == {old, new}


def test_the_pages_own_example_works(table: Table) -> None:
    """docs/migrating.md is copied from."""
    text = (Path(__file__).parents[2] / "docs" / "migrating.md").read_text()
    sql = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)[0]
    lanes = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[0])["lanes"]
    table.run(sql)
    table.configure(lanes["outboxevent"]["columns"], lane="outboxevent")
    table.cli("init-db", "--adopt", "--existing", "delivered").ok()
    event_id = str(uuid.uuid4())
    table.run(INSERT.replace("room_outbox", "outboxevent"), (event_id, "7", "OrderPlaced", "{}"))
    table.relay()
    assert table.received() == {event_id: b"{}"}


def test_sqlite_says_what_it_needs(tmp_path: Path) -> None:
    """There a table keeps its key."""
    path = tmp_path / "outbox.yaml"
    write_config(path, f"sqlite:///{tmp_path}/outbox.db", {"console": {"type": "console"}})
    refused = Cli(tmp_path, path)("init-db", "--adopt")
    assert refused.status == 1
    assert "INTEGER PRIMARY KEY" in refused.err
