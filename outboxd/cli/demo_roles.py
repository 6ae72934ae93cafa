"""What the demo runs beside the relay's own workers: a receiver that counts, a producer, and the memory they share."""

import json
import mmap
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from outboxd import vitals
from outboxd.config.schema import Database, Lane
from outboxd.errors import StoreConflict
from outboxd.store import connect
from outboxd.store.desk import NewEvent, enqueue

TYPES = ("RoomCreated", "RoomUserJoined", "RoomGiftSent", "RoomRocketIgnited", "RoomClosed")
ROOMS = 40
PAUSE_S = 0.2

_RECEIVED, _REPEATED, _FIRST, _LAST, _LATENCIES = range(5)


class Tally:
    """What happened so far, in memory that the demo's processes share. Each number has one writer. Times are
    time.monotonic(), which all processes of a machine read from the same clock.
    """

    def __init__(self, events: int) -> None:
        self.events = events
        self._numbers = memoryview(mmap.mmap(-1, (_LATENCIES + events) * 8)).cast("d")

    def began(self, now_s: float) -> None:
        """The producer starts."""
        self._numbers[_FIRST] = now_s

    def received(self, number: int, sent_s: float, now_s: float) -> None:
        """The receiver got an event, for the first time or again."""
        if self._numbers[_LATENCIES + number]:
            self._numbers[_REPEATED] += 1
            return
        self._numbers[_LATENCIES + number] = max(now_s - sent_s, 1e-9)
        self._numbers[_LAST] = now_s
        self._numbers[_RECEIVED] += 1

    @property
    def arrived(self) -> int:
        """Different events that have arrived."""
        return int(self._numbers[_RECEIVED])

    @property
    def repeated(self) -> int:
        """Arrivals of events that had arrived before."""
        return int(self._numbers[_REPEATED])

    @property
    def took_s(self) -> float:
        """From the first event written to the last one received."""
        return max(self._numbers[_LAST] - self._numbers[_FIRST], 1e-3)

    def latencies_s(self) -> list[float]:
        """From the commit's begin to the receiver, of each event that has arrived; sorted."""
        return sorted(latency for latency in self._numbers[_LATENCIES:] if latency)


def event_id_of(number: int) -> str:
    """The demo's event of that number."""
    return f"demo-{number + 1:06d}"


def receive(context: vitals.Context, listener: socket.socket, tally: Tally) -> int:
    """Answer every POST with 204 and count it, until asked to stop."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            payload = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            number = int(self.headers["ce-id"].rpartition("-")[2]) - 1
            with lock:
                tally.received(number, float(payload["sent_s"]), time.monotonic())
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the tally says it all."""

    server = ThreadingHTTPServer(listener.getsockname(), Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    context.slot.set_state(vitals.State.RUNNING)
    while not (context.stop.requested or context.orphaned()):
        context.slot.beat(time.monotonic())
        time.sleep(PAUSE_S)
    return 0


def produce(context: vitals.Context, database: Database, lane: Lane, tally: Tally) -> int:
    """Write every event in a transaction of its own, as an application would; then end."""
    context.slot.set_state(vitals.State.RUNNING)
    connection = connect(database)
    tally.began(time.monotonic())
    number = 0
    while number < tally.events and not (context.stop.requested or context.orphaned()):
        context.slot.beat(time.monotonic())
        payload = {"room": number % ROOMS, "number": number, "sent_s": time.monotonic()}
        event = NewEvent(
            event_id=event_id_of(number),
            event_type=TYPES[number % len(TYPES)],
            room_id=f"room-{number % ROOMS}",
            envelope=json.dumps(payload).encode(),
            app_code="demo",
        )
        try:
            enqueue(connection, lane, event)
        except StoreConflict:  # the workers hold the file just now: the same event again
            continue
        number += 1
    connection.close()
    return 0
