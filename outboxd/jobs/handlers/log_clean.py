"""LogClean: old lines of the job log go."""

import contextlib
from typing import Annotated

import msgspec

from outboxd.jobs.handlers.params import read_params
from outboxd.jobs.registry import Context, handler
from outboxd.schedule.log_clean import clean_log

MOST_ROWS = 200_000
"""Of one run. More wait for the next one."""
DAY_MS = 86_400_000


class LogCleanParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """retention_days: instead of `jobs.log_retention_days`, within the same bounds."""

    retention_days: Annotated[int, msgspec.Meta(ge=1, le=36_500)] | msgspec.UnsetType = msgspec.UNSET


@handler("LogClean")
def log_clean(context: Context, params: str) -> str:
    """Delete what is older than the days of params, else of the configuration; at most MOST_ROWS lines."""
    asked = read_params(params, LogCleanParams).retention_days
    days = context.settings.log_retention_days if asked is msgspec.UNSET else asked
    with contextlib.closing(context.open_connection()) as connection:
        cleaned = clean_log(connection, days * DAY_MS, MOST_ROWS, context.should_stop, context.wait)
    rest = "" if cleaned.is_complete else ", more is left for the next run"
    return f"{cleaned.deleted} lines older than {days} days deleted{rest}"
