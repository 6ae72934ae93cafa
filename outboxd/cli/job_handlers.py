"""The handlers of scheduled jobs, looked at before the role that runs them loads them for good."""

from collections.abc import Iterator

from outboxd.config.schema import Jobs
from outboxd.errors import HandlerError


def look(jobs: Jobs) -> str:
    """Import the modules; which handlers there are. Raises HandlerError with everything that is wrong."""
    from outboxd.jobs.registry import load_handlers

    return f"registered: {', '.join(load_handlers(jobs.handlers))}"


def refusals(jobs: Jobs) -> Iterator[str]:
    """What a person must put right before jobs can run on this node."""
    if jobs.enabled:
        try:
            look(jobs)
        except HandlerError as error:
            yield str(error)
