"""What an operator may write down as a job, and why something is refused. Pure."""

import re
from dataclasses import dataclass

import msgspec

from outboxd.config.report import Bad
from outboxd.config.urls import check_http, has_userinfo
from outboxd.errors import CronError, OutboxdError
from outboxd.redact import clip
from outboxd.schedule import cron
from outboxd.schedule.records import Job, JobStatus, Policy

LIMITS = {"name": 64, "cron_expression": 255, "url": 1024, "params": 4096, "remark": 512}
"""Characters that a column takes."""
MOST_JOBS = 500
"""Each has its thread, its metrics and its place in every list."""
MOST_WAITING = 16
"""Runs of one job that were asked for and wait for a node."""
GREATEST_ID = 2**63 - 1

_CALLED = {"cron_expression": "the cron expression", "params": "params"}

_HANDLER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
# What no one line shows, or shows as something else: control characters, separators of lines, changes of direction.
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_UNSEEN_IN_PARAMS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_SHOWN_CHARACTERS = 80


class JobError(OutboxdError):
    """Not done. what: what is wrong; todo: what to do about it."""

    def __init__(self, what: str, todo: str) -> None:
        self.what = what
        self.todo = todo
        super().__init__(f"{what}: {todo}")


class BadJob(JobError):
    """What was given cannot be a job, or cannot be run."""


class NoSuchJob(JobError):
    """There is no job of that id, or it was deleted."""


class TooMany(JobError):
    """As many as there may be are there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job as an operator writes it; for the fields see records.Job."""

    name: str
    cron_expression: str
    url: str
    params: str = ""
    execute_policy: int = Policy.IMMEDIATE
    is_sync: int = 1
    remark: str = ""


def as_written(job: Job) -> NewJob:
    """What an operator wrote of it."""
    return NewJob(
        name=job.name,
        cron_expression=job.cron_expression,
        url=job.url,
        params=job.params,
        execute_policy=int(job.execute_policy),
        is_sync=int(job.is_sync),
        remark=job.remark,
    )


def check_new(job: NewJob) -> None:
    """All but the cron expression, which `why_bad_cron` looks at. Raises BadJob."""
    for field, most in LIMITS.items():
        _check_text(field, getattr(job, field), most)
    for field in ("name", "cron_expression", "url"):
        value = getattr(job, field)
        if not value or value != value.strip():
            what = f"{_the(field)} {'begins or ends with a space' if value.strip() else 'is empty'}"
            raise BadJob(what, "write it without spaces around it" if value.strip() else "give one")
    if job.execute_policy not in tuple(Policy):
        what = f"the execute policy is {_shown(job.execute_policy)}"
        raise BadJob(what, "write 1 (immediate), 2 (single) or 3 (skip)")
    if job.is_sync not in (0, 1):
        todo = "write 1 (a tick is skipped while it runs) or 0"
        raise BadJob(f"whether it is synchronous is {_shown(job.is_sync)}", todo)
    check_url(job.url)
    if is_called(job.url) and job.params.strip():
        try:
            msgspec.json.decode(job.params.encode())
        except (msgspec.DecodeError, RecursionError) as error:
            what = f"params are no JSON, and a call posts them as JSON: {clip(str(error), _SHOWN_CHARACTERS)}"
            raise BadJob(what, "write JSON, or no params for a GET") from None


def is_called(url: str) -> bool:
    """Is it an address, rather than a handler's name?"""
    return ":" in url or "/" in url


def _check_text(field: str, value: str, most: int) -> None:
    if len(value) > most:
        raise BadJob(f"{_the(field)} has {len(value):,} characters, and {most:,} is the most", "shorten it")
    if _SURROGATE.search(value):
        raise BadJob(f"{_the(field)} is no Unicode text: it holds half of a character", "send it as UTF-8")
    found = (_UNSEEN_IN_PARAMS if field == "params" else _UNSEEN).search(value)
    if found:
        where = f"at {found.start() + 1:,}"
        raise BadJob(f"{_the(field)} holds the control character U+{ord(found[0]):04X} ({where})", "take it out")


def check_url(url: str) -> None:
    """Is it a URL that a job can call, or a handler's name? Raises BadJob."""
    if not is_called(url):
        if _HANDLER.fullmatch(url) is None:
            todo = "write letters, digits, _ . and -, 64 at the most, or http://... for a call"
            raise BadJob("the url is no handler's name", todo)
        return
    try:
        check_http(url)
    except Bad as error:
        todo = "write http://host/path, https://host/path or the name of a handler"
        raise BadJob(f"the url cannot be called: {error}", todo) from None
    if has_userinfo(url):
        todo = "whoever may list jobs would see it; let the receiver trust this network, or write a handler of your own"
        raise BadJob("the url names a user or a password", todo)


def why_bad_cron(expression: str) -> str:
    """Why the cron expression has no ticks, "" if it has."""
    try:
        cron.parse(expression)
    except CronError as error:
        return str(error)
    return ""


def check_cron(expression: str) -> None:
    """Raises BadJob."""
    why = why_bad_cron(expression)
    if why:
        raise BadJob(f"the cron expression {_shown(expression)} cannot be used: {why}", CRON_TODO)


CRON_TODO = "see `Cron expressions` in docs/jobs.md"


def called(job_id: int, name: str) -> str:
    """A job, for a sentence."""
    return f"job {job_id} ({clip(name, LIMITS['name'])})"


def named(job: Job) -> str:
    """A job, for a sentence."""
    return called(job.id, job.name)


def status_named(value: int) -> JobStatus:
    """Raises BadJob."""
    try:
        return JobStatus(value)
    except ValueError:
        todo = "write 0 (unpublished), 1 (running) or 2 (paused)"
        raise BadJob(f"the status is {_shown(value)}", todo) from None


def _the(field: str) -> str:
    return _CALLED.get(field, f"the {field}")


def _shown(value: object) -> str:
    return clip(repr(value) if isinstance(value, str) else str(value), _SHOWN_CHARACTERS)
