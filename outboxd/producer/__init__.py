"""For applications: events go into the outbox in the transaction that makes the change (docs/producing.md).

    from outboxd.producer import Event, record, ring

    record(connection, Event(event_type="RoomCreated", room_id="room-42", envelope={"room": 42}))
    connection.commit()
    ring("room_outbox", "redis://redis.internal:6379/0")

Nothing of the relay is imported, no driver, and no library but the standard one: they are the caller's.
"""

from outboxd.errors import EventRefused, ProducerMisused
from outboxd.producer.after_commit import ring_after_commit
from outboxd.producer.doorbell import REST_S, TIMEOUT_S, URL_VARIABLE, Client, channel, ring
from outboxd.producer.event import Event
from outboxd.producer.held import Held, Tried, publish_now, record_held
from outboxd.producer.ids import new_event_id
from outboxd.producer.recording import record

__all__ = [
    "REST_S", "TIMEOUT_S", "URL_VARIABLE", "Client", "Event", "EventRefused", "Held", "ProducerMisused", "Tried",
    "channel", "new_event_id", "publish_now", "record", "record_held", "ring", "ring_after_commit",
]  # fmt: skip
