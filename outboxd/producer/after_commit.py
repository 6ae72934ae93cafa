"""Ringing by itself, where SQLAlchemy's sessions say that they have committed."""

import weakref
from typing import Any

from outboxd.producer.doorbell import Client, ring

_recorded: "weakref.WeakKeyDictionary[Any, set[str]]" = weakref.WeakKeyDictionary()
"""Transaction of a session, or savepoint in it -> lanes in which events were recorded that may be relayed at once."""


def note(session: Any, lane: str) -> None:
    """An event was recorded in the session's transaction, or in its innermost savepoint."""
    transaction = session.get_nested_transaction() or session.get_transaction()
    if transaction is not None:
        _recorded.setdefault(transaction, set()).add(lane)


def ring_after_commit(sessions: Any, url: str | None = None, *, client: Client | None = None) -> None:
    """From now on, ring the lanes in which `record` has written through a session, once for each of its commits.

    sessions: a sessionmaker, scoped_session, Session, or the class Session for all there are; for asyncio, the class of
    an AsyncSession's `sync_session`. url, client: as for `ring`. What is rolled back, with its savepoint or altogether,
    is not rung for; nor are delayed events, which nobody is to look for now. Call it once, where the sessionmaker is
    made.

        ring_after_commit(SessionLocal, "redis://redis.internal:6379/0")
    """
    from sqlalchemy import event  # noqa: PLC0415  whoever has a session has it

    def after(session: Any) -> None:
        nested = session.get_nested_transaction()
        if nested is None:
            for lane in sorted(_recorded.pop(session.get_transaction(), ())):
                ring(lane, url, client=client)
        elif lanes := _recorded.pop(nested, None):  # a savepoint was released: it is its parent's now
            parent = nested.parent
            while parent.parent is not None and not parent.nested:  # a flush has one of its own
                parent = parent.parent
            _recorded.setdefault(parent, set()).update(lanes)

    event.listen(sessions, "after_commit", after)
