"""`outboxd jobs add`, `update`, `delete`, `pause`, `resume`: what an operator decides about scheduled jobs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import click

from outboxd.cli import show
from outboxd.cli.shared import EXIT_DONE, EXIT_FAILED, Command, Options, agree
from outboxd.schedule import book, rules, telling
from outboxd.schedule.records import Job, JobStatus
from outboxd.schedule.rules import GREATEST_ID, BadJob

Decorated = TypeVar("Decorated", bound=Callable[..., object])

JOB_ID = click.IntRange(1, GREATEST_ID)
_JSON = click.option("--json", "wants_json", is_flag=True, help="Print the result as JSON.")
_ID = click.argument("job_id", metavar="ID", type=JOB_ID)


def _written(*, required: bool) -> Callable[[Decorated], Decorated]:
    """The options that say what a job is; each is None where it is left out."""
    options = (
        click.option("--name", metavar="NAME", required=required, help="What people call it, 64 characters."),
        click.option("--cron", "cron_expression", metavar="EXPR", required=required, help="When; quote it."),
        click.option("--url", metavar="URL", required=required, help="http(s)://... to call, or a handler's name."),
        click.option("--params", metavar="TEXT", help="For the handler, or what is posted; 4,096 characters."),
        click.option("--policy", "execute_policy", type=click.IntRange(1, 3), help="1 immediate, 2 single, 3 skip."),
        click.option("--is-sync", type=click.IntRange(0, 1), help="1: a tick is skipped while it runs; 0: it is not."),
        click.option("--remark", metavar="TEXT", help="For people, 512 characters."),
    )

    def decorated(command: Decorated) -> Decorated:
        for option in reversed(options):
            command = option(command)
        return command

    return decorated


@contextmanager
def _usage() -> Iterator[None]:
    """What cannot be a job is wrong usage."""
    try:
        yield
    except BadJob as error:
        raise click.UsageError(str(error)) from None


@click.command(cls=Command)
@_written(required=True)
@_JSON
@click.pass_obj
def add(options: Options, /, wants_json: bool, **given: object) -> None:
    """Add a job. It is unpublished: `outboxd jobs resume ID` gives it ticks, `run ID` tries it once."""
    job = rules.NewJob(**_named(given))  # type: ignore[arg-type]  # click has looked
    with options.connection() as connection, _usage():
        job_id = book.add(connection, job)
    _tell(job_id, JobStatus.UNPUBLISHED, telling.added(job_id, job.name), wants_json)


@click.command(cls=Command)
@_ID
@_written(required=False)
@_JSON
@click.pass_obj
def update(options: Options, /, job_id: int, wants_json: bool, **given: object) -> int:
    """Change what is named of a job; the rest stays. A running one goes on as it is written then.

    A running job whose new cron expression cannot be used is changed and paused, which is told, with exit status 1.
    """
    changes = _named(given)
    if not changes:
        raise click.UsageError("nothing is to be changed: name at least one option")
    with options.connection() as connection, _usage():
        result = book.update(connection, job_id, changes)
    _tell(job_id, result.job.status, telling.updated(result), wants_json)
    return EXIT_FAILED if result.bad_cron else EXIT_DONE


@click.command(cls=Command)
@_ID
@click.option("--yes", is_flag=True, help="Do not ask.")
@_JSON
@click.pass_obj
def delete(options: Options, job_id: int, yes: bool, wants_json: bool) -> None:
    """Delete a job for good; its log stays. Always asks first. A run that goes on ends by itself."""
    with options.connection() as connection:
        job = book.get(connection, job_id)
    agree(f"Delete {rules.named(job)} for good?", yes, "add --yes to do it")
    with options.connection() as connection:
        job = book.delete(connection, job_id)
    _tell(job_id, job.status, telling.deleted(job), wants_json)


@click.command(cls=Command)
@_ID
@_JSON
@click.pass_obj
def pause(options: Options, job_id: int, wants_json: bool) -> None:
    """Take a job's ticks away, on every node within seconds. A run that goes on ends by itself."""
    with options.connection() as connection:
        _set(book.pause(connection, job_id), wants_json)


@click.command(cls=Command)
@_ID
@_JSON
@click.pass_obj
def resume(options: Options, job_id: int, wants_json: bool) -> None:
    """Give a job its ticks, on every node within seconds, whether it was paused or never published."""
    with options.connection() as connection:
        _set(book.resume(connection, job_id), wants_json)


def _set(job: Job, wants_json: bool) -> None:
    _tell(job.id, job.status, telling.status_set(job), wants_json)


def _named(given: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in given.items() if value is not None}


def _tell(job_id: int, status: JobStatus, says: str, wants_json: bool) -> None:
    if wants_json:
        show.as_json(telling.changed_document(job_id, status, says))
    else:
        show.line(says)
