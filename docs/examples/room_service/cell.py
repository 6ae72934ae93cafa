"""The write chain: what becomes of a command, step by step. README.md has a picture of it.

A *Room Cell* is a room in the memory of the node that owns it. A command reads it, and what it makes takes its place
once the database has it: the room in memory is always one that was committed.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from functools import partial, reduce

import msgspec

from outboxd.envelope import Envelope
from outboxd.producer import Held, new_event_id, publish_now, ring
from room_service import store, wallet
from room_service.cells import Cell, Cells
from room_service.database import Database, Unavailable
from room_service.domain import AnyCommand, Change, Room, SendGift, decide, fold
from room_service.lease import Leases
from room_service.projections import Projections
from room_service.publishing import Publishing
from room_service.settings import Settings, failpoint
from room_service.timing import Timing, log

LANE = "room_outbox"
RECOVERED = (store.Fenced, wallet.WalletFenced, Unavailable)
"""What leaves a cell in doubt: the room's next command loads it anew, and settles what the wallet holds."""


class CommandMismatch(Exception):
    """The command_id was used for another command."""


class Rooms:
    """The rooms of one node. Threads may share it; the commands of one room take turns."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.database = Database(settings.database_url)
        self._leases = Leases(settings.redis_url, settings.url, settings.lease_ms)
        self._cells = Cells(self._leases)
        self.projections = Projections(settings.redis_url)
        self._publishing = Publishing(settings) if settings.publishes_now else None

    def execute(self, room_id: str, command: AnyCommand, command_id: str) -> bytes:
        """Do a command; the answer, JSON. A command_id that was done gets the answer it got then, and does nothing.

        Raises domain.Refused, CommandMismatch; wallet.Insufficient; OwnedElsewhere; and, after which the same
        command_id is to be sent again, Unavailable, NoLeases, cells.Busy, store.Fenced, wallet.WalletFenced.
        """
        timing, outcome = Timing(), "failed"
        kind = _kind(command)
        try:
            with self._cells.locked(room_id) as cell:
                outcome, answer = self._run(cell, command, command_id, timing)
            return answer
        except Exception as error:
            outcome = type(error).__name__
            raise
        finally:
            publishing = self._publishing
            log(
                "room_command_timing", self.settings.node, room_id=room_id, command_id=command_id, command=kind,
                outcome=outcome, **timing.fields(),
                activity_async_outbox=publishing is None or publishing.activity is None,
                tencent_im_async_outbox=publishing is None or publishing.tencent is None,
            )  # fmt: skip

    def _run(self, cell: Cell, command: AnyCommand, command_id: str, timing: Timing) -> tuple[str, bytes]:
        kind = _kind(command)
        failpoint("begun", kind)
        with timing.step("idempotency"):
            stored = self._stored(cell.room_id, command, command_id)
        if stored is not None:
            return "repeated", stored
        failpoint("after_idempotency", kind)
        with timing.step("lease"):
            before = self._own(cell, kind)
        now_ms = time.time_ns() // 1_000_000
        events = self._envelopes(before, decide(before, command, now_ms, self.settings.rules), now_ms)
        after = reduce(fold, events, before)
        failpoint("after_mutate", kind)
        logged = store.Logged(command_id, kind, _encoded(command), events, _answer(command_id, after, events), now_ms)
        try:
            held = self._commit(cell, command, before, after, logged, timing)
        except RECOVERED:
            cell.forget()
            raise
        except store.AlreadyDone:  # on another node, meanwhile
            cell.forget()
            answer = self._stored(cell.room_id, command, command_id)
            assert answer is not None, "a command that is in the log can be read"
            return "repeated", answer
        with timing.step("snapshot"):
            self._snapshot(before, after)
        failpoint("after_snapshot", kind)
        cell.room = after
        failpoint("after_swap", kind)
        with timing.step("projection"):
            self._tell(after, command, command_id)
        self._publish(held, kind, timing)
        return "done", logged.answer

    def _stored(self, room_id: str, command: AnyCommand, command_id: str) -> bytes | None:
        stored = store.find_command(self.database, command_id)
        if stored is None:
            return None
        if (stored.room_id, stored.command) != (room_id, _encoded(command)):
            raise CommandMismatch(f"{command_id} was used for another command")
        return stored.answer

    def _own(self, cell: Cell, kind: str) -> Room:
        """The room in our hands: by a lease that we have or take, and loaded if it was not."""
        if cell.lease is not None:
            cell.lease = self._leases.keep(cell.lease)
        if cell.lease is None:
            cell.room = None
            cell.lease = self._leases.take(cell.room_id)
        failpoint("after_lease", kind)
        if cell.room is None:
            # In this order: once the epoch is taken nobody else can save, so what is loaded is the last there is, and
            # a debit that is held and not in the log will never be.
            cell.epoch = store.take_over(self.database, cell.room_id, self.settings.node)
            failpoint("after_epoch", kind)
            room = store.load(self.database, cell.room_id)
            committed = partial(store.committed, self.database, cell.room_id)
            wallet.settle(self.database, cell.room_id, cell.epoch, committed)
            failpoint("after_settling", kind)
            cell.room = room
        return cell.room

    def _envelopes(self, room: Room, changes: Sequence[Change], now_ms: int) -> list[Envelope]:
        return [
            Envelope(
                event_id=new_event_id(),
                event_type=event_type,
                app_code=self.settings.app_code,
                room_id=room.room_id,
                room_version=version,
                occurred_at_ms=now_ms,
                body=body,
            )
            for version, (event_type, body) in enumerate(changes, room.version + 1)
        ]

    def _commit(
        self, cell: Cell, command: AnyCommand, before: Room, after: Room, logged: store.Logged, timing: Timing
    ) -> list[Held]:
        """The money first, then the command. What was taken for a command that is not saved is given back when the room
        is loaded the next time.
        """
        if isinstance(command, SendGift):
            with timing.step("wallet_debit"):
                wallet.debit(
                    self.database, logged.command_id, cell.room_id, cell.epoch, command.user_id, command.total_coins
                )
            failpoint("after_debit", logged.kind)
        hold_s = self.settings.publish_timeout_s if self._publishing else 0.0
        with timing.step("save_mutation"):
            held = store.save(self.database, before, after, cell.epoch, logged, hold_s)
        failpoint("after_commit", logged.kind)
        return held

    def _snapshot(self, before: Room, after: Room) -> None:
        every = self.settings.snapshot_every
        if before.version // every != after.version // every:
            with self._best_effort("snapshot", after.room_id):
                store.snapshot(self.database, after)

    def _tell(self, room: Room, command: AnyCommand, command_id: str) -> None:
        """Those who may miss it: the command is done."""
        kind = _kind(command)
        with self._best_effort("projection", room.room_id):
            self.projections.put(room)
        failpoint("after_projection", kind)
        if isinstance(command, SendGift):
            with self._best_effort("spending", room.room_id):
                wallet.spend(self.database, command_id)
            failpoint("after_spending", kind)
        if self._publishing is None:
            ring(LANE, self.settings.redis_url)
        failpoint("after_ring", kind)

    def _publish(self, held: Sequence[Held], kind: str, timing: Timing) -> None:
        """At once, where that is wanted. Whatever becomes of it, the relay has the rest."""
        for event in held:
            assert self._publishing is not None, "events are held only to be published"
            publisher = partial(self._publishing.publish, timing=timing)
            tried = publish_now(self.database.connect, event, publisher)
            failpoint("after_publish", kind)
            if tried.error:
                log("publish_now_failed", self.settings.node, event_id=event.event_id, error=tried.error)

    @contextlib.contextmanager
    def _best_effort(self, what: str, room_id: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001  whatever it is: the command has been committed
            log(f"{what}_failed", self.settings.node, room_id=room_id, error=str(error))

    def read(self, room_id: str) -> Room:
        """The room as it was committed last, whoever owns it."""
        return store.load(self.database, room_id)

    def settle(self, room_id: str) -> None:
        """Load the room anew, if it is ours or can be had, and settle what the wallet holds for it."""
        with self._cells.locked(room_id) as cell:
            cell.forget()
            self._own(cell, "settle")

    def close(self) -> None:
        """Let other nodes have the rooms at once."""
        self._cells.release_all()


def _kind(command: AnyCommand) -> str:
    return str(type(command).__struct_config__.tag)


def _encoded(command: AnyCommand) -> bytes:
    return msgspec.json.encode(command)


def _answer(command_id: str, room: Room, events: Sequence[Envelope]) -> bytes:
    told = [{"event_id": event.event_id, "event_type": event.event_type} for event in events]
    return msgspec.json.encode(
        {"command_id": command_id, "room_id": room.room_id, "version": room.version, "events": told}
    )

