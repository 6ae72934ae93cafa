"""A daemon with dead letters and delayed events, asked over its admin API and by the commands."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outboxd.config.schema import Database
from tests.services.admin import TOKEN, Answer, Client
from tests.services.cli import Cli
from tests.services.daemon import Daemon, write_config
from tests.services.find import free_port
from tests.services.lanes import Table, table_of

PUBLISHERS = {"bus": {"type": "null"}, "im": {"type": "null", "events": ["Room*"]}}
HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Running:
    """A daemon, its table, and those who ask it."""

    daemon: Daemon
    table: Table
    cli: Cli
    owner: Client
    token: Client
    database: Database


@contextmanager
def running_in(folder: Path, **worker: Any) -> Iterator[Running]:
    """Start one, on an embedded database. worker: keys of `outbox_worker`."""
    port = free_port()
    (folder / "token").write_text(TOKEN)
    admin = {"listen": f"127.0.0.1:{port}", "token_file": str(folder / "token")}
    config = write_config(
        folder / "o.yaml",
        f"sqlite:///{folder}/o.db",
        PUBLISHERS,
        admin=admin,
        database={"statement_timeout": "1s"},
        **worker,
    )
    with table_of(config) as table, Daemon(folder / "o.yaml", folder / "log") as daemon:
        daemon.admin_pid()
        owner, token = Client(Path(config.admin.socket)), Client(("127.0.0.1", port), TOKEN)
        yield Running(daemon, table, Cli(folder, folder / "o.yaml"), owner, token, config.database)


def bury(table: Table, *event_ids: str, **columns: object) -> None:
    """Make dead letters."""
    usual: dict[str, object] = {"status": "failed", "updated_at_ms": table.now_ms() - HOUR_MS, "retry_count": 2}
    usual |= {"last_error": "im: HTTP 422: no room", "published_to": "bus,!im"}
    table.insert([{"event_id": name, "event_type": "RoomCreated", "room_id": "room-1", "app_code": "app",
                   "envelope": b'{"a": 1}', **usual, **columns} for name in event_ids])  # fmt: skip


def delay(table: Table, *event_ids: str, **columns: object) -> None:
    """Events that no worker touches: due tomorrow."""
    for event_id in event_ids:
        table.fill(1, event_id=event_id, next_retry_at_ms=table.now_ms() + 24 * HOUR_MS, **columns)


def status_of(table: Table, event_id: str) -> object:
    return table.row(event_id)["status"]


def without_clock(document: Any) -> Any:
    """The document but for what a clock says while it is made."""
    if isinstance(document, dict):
        clocks = ("time_ms", "headline", "details", "workers")
        return {name: without_clock(value) for name, value in document.items() if name not in clocks}
    return [without_clock(item) for item in document] if isinstance(document, list) else document


def ok(answer: Answer) -> Any:
    assert answer.status == 200, answer
    assert answer.headers["Content-Type"] == "application/json"
    return answer.json
