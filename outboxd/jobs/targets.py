"""What a job calls, by its `url`: an address of the web, else a handler that is registered."""

import difflib
import inspect

from outboxd.errors import JobFailed
from outboxd.jobs.registry import Context, described, registered
from outboxd.redact import clip, redact
from outboxd.schedule.records import SHOWN_CHARACTERS, Job

_LISTED_NAMES = 8


def run_target(job: Job, context: Context) -> str:
    """Call it, to its end; what the job log keeps, redacted and at most SHOWN_CHARACTERS long.

    Raises JobFailed with the reason, and nothing else, whatever the target does.
    """
    return call_handler(job, context)


def call_handler(job: Job, context: Context) -> str:
    """The handler that the job's url names. Raises JobFailed."""
    function = registered().get(job.url)
    if function is None:
        raise JobFailed(clip(redact(f"no local handler named {job.url!r}; {_near(job.url)}"), SHOWN_CHARACTERS))
    try:
        result: object = function(context, job.params)
    except JobFailed as error:
        raise JobFailed(clip(redact(str(error)), SHOWN_CHARACTERS)) from error
    except BaseException as error:  # noqa: BLE001  # someone else's code; SystemExit too would end the thread without a word
        raise JobFailed(described(error)) from error
    if result is None:
        return ""
    if not isinstance(result, str):
        if inspect.iscoroutine(result):
            result.close()  # else Python warns that it was never awaited
        raise JobFailed(f"the handler {job.url} returned {type(result).__name__}, it must return a text or nothing")
    return clip(redact(result), SHOWN_CHARACTERS)


def _near(name: str) -> str:
    known = sorted(registered())
    folded = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(name[:64].lower(), folded, n=1, cutoff=0.6)
    if near:
        return f"did you mean {folded[near[0]]}?"
    more = f" and {len(known) - _LISTED_NAMES} more" if len(known) > _LISTED_NAMES else ""
    return f"known here: {', '.join(known[:_LISTED_NAMES]) or 'none'}{more}"
