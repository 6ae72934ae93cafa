"""Jobs whose url is an address of the web, called in the test's own thread."""

import pytest

from outboxd.config.schema import Jobs
from outboxd.errors import JobFailed
from outboxd.jobs.registry import Context
from outboxd.jobs.targets import run_target
from outboxd.schedule.records import Job


def job(url: str, params: str = "") -> Job:
    """One that would run every hour."""
    return Job(id=7, name="nightly", cron_expression="0 0 * * * *", url=url, params=params)


def context(allow_private: bool = True) -> Context:
    """A run of it."""
    settings = Jobs(allow_private_targets=allow_private)
    return Context(job_id=7, job_name="nightly", fire_at_ms=1_764_480_000_000, settings=settings)


def call(url: str, params: str = "", allow_private: bool = True) -> str:
    """What the job log would keep."""
    return run_target(job(url, params), context(allow_private))


def failure(url: str, params: str = "", allow_private: bool = True) -> str:
    """Why it fails."""
    with pytest.raises(JobFailed) as failed:
        call(url, params, allow_private)
    return str(failed.value)
