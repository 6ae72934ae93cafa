"""A service that publishes by itself, with the relay beneath it."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outboxd.producer import Event, Held, record_held
from outboxd.producer.held import Tried
from tests.services.callers import application, connector
from tests.services.cli import Cli
from tests.services.daemon import write_config
from tests.services.lanes import Table
from tests.services.receiver import Receiver

DELIVERED = Tried(True, True)


def event(event_id: str = "e1") -> Event:
    return Event(
        event_id=event_id, event_type="RoomCreated", room_id="room-42", envelope={"room": 42}, headers={"a": "b"}
    )


@dataclass
class Service:
    """One that publishes by itself, with the relay beneath it. published: what it has published."""

    driver: str
    url: str
    table: Table
    receiver: Receiver
    cli: Cli
    published: list[str]

    @property
    def connect(self) -> Callable[[], Any]:
        return connector(self.driver, self.url)

    def command(self, event_id: str = "e1", **how: Any) -> Held:
        """A change and its event, held, in one transaction that commits."""
        with closing(self.connect()) as connection:
            connection.cursor().execute(f"INSERT INTO room (room_id, title) VALUES ('{event_id}', 't')")
            held = record_held(connection, event(event_id), **how)
            connection.commit()
        return held

    def publish(self, held: Held) -> None:
        """Its publisher, when all is well."""
        self.published.append(held.event_id)

    def relay(self) -> list[str]:
        """A run of the relay until nothing is due; what has arrived from it so far."""
        assert self.cli("run", "--until-empty").status == 0
        return self.receiver.event_ids()

    def row(self, *columns: str, event_id: str = "e1") -> tuple[Any, ...]:
        found = self.table.row(event_id)
        return tuple(found[column] for column in columns)

    def left_ms(self) -> int:
        """Of the hold."""
        return int(self.row("next_retry_at_ms")[0]) - self.table.now_ms()


@contextmanager
def serving(driver: str, url: str, directory: Path) -> Iterator[Service]:
    """One on an empty database. driver: of callers.DBAPI."""
    with Receiver() as receiver:
        config = write_config(directory / "outbox.yaml", url, {"web": {"type": "http", "url": receiver.url}})
        with application(config) as table:
            yield Service(driver, url, table, receiver, Cli(directory, directory / "outbox.yaml"), [])
