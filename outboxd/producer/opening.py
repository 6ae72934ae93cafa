"""A database session outside the caller's transaction: for what comes after a commit."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from outboxd.errors import ProducerMisused
from outboxd.producer.handle import Handle, handle_of, is_inside, is_session


@contextmanager
def opened(where: Any, *, is_ours: bool = False) -> Iterator[Handle]:
    """A session with a transaction of its own, committed at the end of the block, or rolled back if the block raises.

    where: see held.publish_now. What a function opens is closed. Raises ProducerMisused if a transaction is open in
    what was handed in, whose statements are none of ours to commit; TypeError; and what the driver raises.
    """
    if is_session(where):  # its transaction may have begun again with the first attribute that was read
        where = where.get_bind()
    if _is_engine(where):
        with where.begin() as connection:
            yield handle_of(connection)
    elif hasattr(where, "exec_driver_sql"):
        if where.in_transaction():
            raise ProducerMisused(
                "a transaction is open in the connection: commit before publish_now, or give the engine"
            )
        with where.begin():
            yield handle_of(where)
    elif callable(where) and (isinstance(where, type) or not hasattr(where, "cursor")):
        made = where()
        try:
            with opened(made, is_ours=True) as handle:
                yield handle
        finally:
            with suppress(Exception):  # closing what is broken
                made.close()
    else:
        handle = handle_of(where)
        # sqlite3's own autocommit=False begins the next transaction with each commit, and with the connection
        begins_at_once = is_ours and getattr(handle.raw, "autocommit", None) is False
        if is_inside(handle) and not begins_at_once:
            raise ProducerMisused("a transaction is open in the connection: commit before publish_now")
        try:
            yield handle
        except BaseException:
            with suppress(Exception):  # a broken connection has rolled back by itself
                handle.raw.rollback()
            raise
        handle.raw.commit()


def _is_engine(given: Any) -> bool:
    return all(callable(getattr(given, name, None)) for name in ("begin", "connect", "raw_connection"))
