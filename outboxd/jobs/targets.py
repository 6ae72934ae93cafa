"""What a job calls, by its `url`: an address of the web, else a handler that is registered."""

import difflib
import inspect
import re

from outboxd.errors import JobFailed
from outboxd.jobs.registry import Context, described, registered
from outboxd.redact import clip, redact
from outboxd.schedule.records import SHOWN_CHARACTERS, Job

_WEB = re.compile(r"https?://", re.IGNORECASE)
_LISTED_NAMES = 8

MOST_CHARACTERS = SHOWN_CHARACTERS + 50
"""Of the reason of a failure: a status and what was shown with it."""


def run_target(job: Job, context: Context) -> str:
    """Call it, to its end; what the job log keeps: redacted, on one line, of SHOWN_CHARACTERS and a status at most.

    Raises JobFailed with the reason, and nothing else, whatever the target does.
    """
    call = _call_web if _WEB.match(job.url) else call_handler
    try:
        return call(job, context)
    except JobFailed as error:
        raise JobFailed(clip(redact(str(error)), MOST_CHARACTERS)) from error
    except BaseException as error:  # someone else's code; SystemExit would end the thread without a word
        raise JobFailed(described(error)) from error


def _call_web(job: Job, context: Context) -> str:
    from outboxd.jobs.web import call_web  # noqa: PLC0415  # pycurl is loaded where something is called with it

    return call_web(job, context)


def call_handler(job: Job, context: Context) -> str:
    """Call the handler that the job's url names. Raises JobFailed, and whatever the handler raises."""
    function = registered().get(job.url)
    if function is None:
        raise JobFailed(f"no local handler named {clip(job.url, 80)!r}; {_near(job.url)}")
    result: object = function(context, job.params)
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
