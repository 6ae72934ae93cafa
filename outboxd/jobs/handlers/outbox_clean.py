"""OutboxClean: delivered rows that are older than their lane's `retention` go. Nothing else does that."""

import contextlib
import time

import msgspec

from outboxd.config.schema import Lane
from outboxd.errors import JobFailed, OutboxdError
from outboxd.jobs.handlers.params import read_params
from outboxd.jobs.registry import Context, described, handler
from outboxd.store.prune import prune

MOST_ROWS = 2_000_000
"""Of each lane, in one run. More wait for the next one."""
MOST_S = 1800.0
"""Of one run, over all lanes: each has its share of what is left, so that a large one keeps none from its turn."""


class OutboxCleanParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """None."""


@handler("OutboxClean")
def outbox_clean(context: Context, params: str) -> str:
    """Prune every lane that has a retention, whether its workers are enabled on this node or not."""
    read_params(params, OutboxCleanParams)
    return clean_lanes(context, MOST_ROWS, MOST_S)


def clean_lanes(context: Context, most_rows: int, most_s: float) -> str:
    """Prune the lanes one by one; what went, by lane. Raises JobFailed with the same text if one of them failed: the
    others had their turn all the same."""
    lanes = [lane for lane in context.lanes.values() if lane.retention_s > 0]
    if not lanes:
        return "no lane has a retention: everything is kept"
    until_s = time.monotonic() + most_s
    told, failures = [], 0
    for number, lane in enumerate(lanes):
        now_s = time.monotonic()
        lane_until_s = now_s + max(0.0, until_s - now_s) / (len(lanes) - number)
        try:
            told.append(f"{lane.name}: {_clean(context, lane, most_rows, lane_until_s)}")
        except OutboxdError as error:
            failures += 1
            told.append(f"{lane.name}: {described(error)}")
    if failures:
        raise JobFailed("; ".join(told))
    return "; ".join(told)


def _clean(context: Context, lane: Lane, most_rows: int, until_s: float) -> str:
    with contextlib.closing(context.open_connection()) as connection:
        pruned = prune(
            connection,
            lane,
            lane.retention_s,
            most_rows=most_rows,
            should_stop=lambda: context.should_stop() or time.monotonic() >= until_s,
            pause=context.wait,
        )
    return f"{pruned.deleted} rows deleted{'' if pruned.is_complete else ', more is left for the next run'}"
