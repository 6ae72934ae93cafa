"""What the suites work with: an empty lane on each kind of database and a way to its rows; every kind of publisher."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

import pytest

from outboxd.config.schema import COLUMNS, Database, Lane
from outboxd.store import connect, open_store
from outboxd.store.api import Store, Want
from outboxd.store.connection import Connection
from outboxd.store.migrate import init_db
from outboxd.store.statements import NOW
from tests.services.grpc_server import start_grpc_server
from tests.services.kinds import KINDS, Kind

LANE = "room_outbox"


@dataclass(frozen=True)
class Table:
    """The lane's rows, written and read past the store, each statement committed at once."""

    connection: Connection
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def insert(self, **columns: object) -> int:
        """One event of a producer, with what matters to the test; its id."""
        usual = {"event_id": f"event-{next(self.numbers)}", "event_type": "RoomCreated", "room_id": "room-1"}
        row: dict[str, object] = {**usual, "app_code": "app", "envelope": b"{}", **columns}
        names, places = ", ".join(row), ", ".join(f":{name}" for name in row)
        self.connection.execute(f"INSERT INTO {LANE} ({names}) VALUES ({places})", row)
        key = {"event_id": row["event_id"], "app_code": row["app_code"]}
        found = self.connection.query(f"SELECT id FROM {LANE} WHERE event_id = :event_id AND app_code = :app_code", key)
        return int(found[0][0])

    def insert_many(self, count: int, **columns: object) -> list[int]:
        """Many alike, in one transaction; their ids."""
        self.connection.begin()
        ids = [self.insert(**columns) for _ in range(count)]
        self.connection.commit()
        return ids

    def change(self, row_id: int, **columns: object) -> None:
        """What another process, or time, would have done to the row."""
        values = ", ".join(f"{name} = :{name}" for name in columns)
        self.connection.execute(f"UPDATE {LANE} SET {values} WHERE id = :id", {**columns, "id": row_id})

    def delete(self, row_id: int) -> None:
        """Somebody removed it."""
        self.connection.execute(f"DELETE FROM {LANE} WHERE id = :id", {"id": row_id})

    def row(self, row_id: int) -> Mapping[str, object]:
        """All columns."""
        found = self.connection.query(f"SELECT {', '.join(COLUMNS)} FROM {LANE} WHERE id = :id", {"id": row_id})
        return dict(zip(COLUMNS, found[0], strict=True))

    def status(self, row_id: int) -> object:
        """Its status."""
        return self.row(row_id)["status"]

    def now_ms(self) -> int:
        """The database's clock."""
        return int(self.connection.query(f"SELECT {NOW[self.connection.dialect]}")[0][0])

    def run_out(self, *row_ids: int) -> None:
        """Let the lease of claimed rows be over."""
        for row_id in row_ids:
            self.change(row_id, lock_until_ms=self.now_ms() - 1)


def database_of(url: str) -> Database:
    """The settings that a test database's URL stands for."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return Database(url=url, scheme="sqlite", path=url.removeprefix("sqlite:///"))
    return Database(
        url=url,
        scheme="mysql",
        path="",
        host=parts.hostname or "",
        port=parts.port or 3306,
        user=unquote(parts.username or ""),
        password=unquote(parts.password) if parts.password else None,
        name=parts.path.strip("/"),
    )


@pytest.fixture
def database(database_url: str) -> Database:
    """Settings of an empty database; the test runs on each kind."""
    return database_of(database_url)


@pytest.fixture
def lane() -> Lane:
    """Settings of the lane."""
    return Lane(name=LANE, direct=("console",))


@pytest.fixture
def table(database: Database, lane: Lane) -> Iterator[Table]:
    """The lane's table, created and empty."""
    connection = connect(database)
    init_db(connection, [lane])
    yield Table(connection)
    connection.close()


@pytest.fixture
def open_another(database: Database, lane: Lane, table: Table) -> Iterator[Callable[[], Store]]:
    """Opens stores as further workers would; they are closed when the test ends."""
    opened: list[Store] = []

    def open_it() -> Store:
        opened.append(open_store(database, lane))
        return opened[-1]

    yield open_it
    for store in opened:
        store.close()


@pytest.fixture
def store(open_another: Callable[[], Store]) -> Store:
    """The store of one worker."""
    return open_another()


@pytest.fixture
def want() -> Callable[..., Want]:
    """Makes what a worker asks for: every class, far below every limit, a new token each; a test says what differs."""
    tokens = itertools.count(2**61)

    def make(**changes: object) -> Want:
        usual: dict[str, object] = {"token": next(tokens), "worker_id": "node/room_outbox-01", "lease_ms": 30_000}
        bounds: dict[str, object] = {"limit": 100, "budget_bytes": 1 << 20, "max_event_bytes": 1 << 20, "idle": True}
        return Want(**{**usual, **bounds, **changes})  # type: ignore[arg-type]  # each test's words are Want's own

    return make


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> Iterator[Kind]:
    """Made anew for each test, and closed behind it."""
    yield from KINDS[request.param](request)


@pytest.fixture(scope="session")
def activity_target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gRPC server that accepts."""
    server = start_grpc_server(tmp_path_factory.mktemp("grpc"), writes=False)
    yield server.target
    server.stop()
