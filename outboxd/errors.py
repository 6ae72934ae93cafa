"""The tree of our own exceptions. Drivers' errors are translated at the boundary; callers catch ours only."""

from collections.abc import Sequence


class OutboxdError(Exception):
    """Base of all. Its text is one line: what failed, the value, what to do."""


class ConfigError(OutboxdError):
    """The configuration cannot be used. `problems` holds one line each; the program ends with status 2."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


class StoreError(OutboxdError):
    """Something about the database."""


class StoreUnavailable(StoreError):
    """The database is away or the connection broke: nothing is wrong that time does not mend. The caller closes the
    store, backs off, opens it again. What an interrupted transaction did is unknown only where CommitInDoubt says so.
    """


class CommitInDoubt(StoreUnavailable):
    """The connection broke while a COMMIT was under way: all of the transaction stands, or nothing of it.

    token, ids: the claim that was in it, 0 and () where there was none; `Store.fetch` tells what became of it.
    """

    def __init__(self, text: str, token: int = 0, ids: tuple[int, ...] = ()) -> None:
        self.token = token
        self.ids = ids
        super().__init__(text)


class StoreConflict(StoreError):
    """A deadlock or lock wait outlived the repeats: the transaction was rolled back, the call may be made again."""


class StoreRefused(StoreError):
    """The database answers but will not serve: credentials, a missing or older table, a server that is too old, a
    statement it rejects. Its text names the remedy; the program ends with status 1.
    """


class PublisherError(OutboxdError):
    """A publisher cannot be set up as configured: a file that is missing, a target that cannot be imported."""


class HandlerError(OutboxdError):
    """Handlers of scheduled jobs cannot be used: a module that cannot be imported, a name that stands twice. A person
    must put it right.
    """


class JobFailed(OutboxdError):
    """A run of a scheduled job failed. Its text is for the job log: redacted and short."""


class LockUnavailable(OutboxdError):
    """The server of the jobs' locks cannot be asked now."""


class SubscriptionError(OutboxdError):
    """A queue that is read from cannot be asked now. Whoever reads waits and tries again."""


class CronError(OutboxdError):
    """A cron expression that cannot be used: which field, what is wrong, what to write."""


class MetricsError(OutboxdError):
    """The folder of metrics cannot be written; nothing but the metrics depends on it."""


class EventRefused(OutboxdError, ValueError):
    """A producer's event that its table cannot hold, or that the relay would bury: nothing has been written."""


class ProducerMisused(OutboxdError, RuntimeError):
    """A call of outboxd.producer at the wrong moment: outside a transaction, before its commit, within another one."""


class Reject(Exception):
    """Raised by your own Python publisher: this event can never be published. It becomes a dead letter at once."""
