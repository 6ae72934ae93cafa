"""`outboxd jobs run`: one run, now, on whichever node takes it up; how it ends."""

import time

import click

from outboxd.cli import show, values
from outboxd.cli.pause import who
from outboxd.cli.shared import EXIT_DONE, EXIT_FAILED, Command, Options
from outboxd.explain import words
from outboxd.schedule import book, book_runs, telling
from outboxd.schedule.records import Job, Run, RunStatus
from outboxd.schedule.rules import GREATEST_ID
from outboxd.store.connection import Connection

POLL_S = 0.25
LONELY_S = 5.0
"""A run that nobody has taken up for so long is told of."""
USUAL_TIMEOUT = "60s"

_OPEN = (RunStatus.REQUESTED, RunStatus.RUNNING)


@click.command(cls=Command)
@click.argument("job_id", metavar="ID", type=click.IntRange(1, GREATEST_ID))
@click.option("--timeout", callback=values.read_duration, default=USUAL_TIMEOUT, help="How long to wait (60s).")
@click.option("--no-wait", is_flag=True, help="Only ask for it.")
@click.option("--json", "wants_json", is_flag=True, help="Print the run as JSON.")
@click.pass_obj
def run(options: Options, job_id: int, timeout: int, no_wait: bool, wants_json: bool) -> int:
    """Run a job once, now, in whatever state it is, and wait for the end: 0 if it succeeded, else 1.

    A node that has `jobs.enabled` takes it up within seconds. Nothing about the job changes.
    """
    with options.connection() as connection:
        job = book.get(connection, job_id)
        run_id = book_runs.request_run(connection, job_id, who())
        if no_wait:
            says = telling.requested(job, run_id)
            document = telling.changed_document(job_id, job.status, says, runId=run_id)
            show.as_json(document) if wants_json else show.line(says)
            return EXIT_DONE
        found = _wait(connection, run_id, timeout / 1000, wants_json)
    if wants_json:
        show.as_json({"id": run_id, "status": None} if found is None else telling.run_document(found))
    else:
        show.line(_ended(job, run_id, found, timeout))
    return EXIT_DONE if found is not None and found.status is RunStatus.SUCCEEDED else EXIT_FAILED


def _wait(connection: Connection, run_id: int, timeout_s: float, wants_json: bool) -> Run | None:
    """The run as it is in the end, or when the time is over; None if its line is gone."""
    start_s, is_told = time.monotonic(), False
    while True:
        found = book_runs.run(connection, run_id)
        waited_s = time.monotonic() - start_s
        if found is None or found.status not in _OPEN or waited_s >= timeout_s:
            return found
        if found.status is RunStatus.REQUESTED and waited_s >= LONELY_S and not is_told:
            is_told = True
            click.echo("no node has taken it up yet: does a daemon with jobs.enabled run?", err=wants_json)
        time.sleep(max(0.0, min(POLL_S, timeout_s - waited_s)))


def _ended(job: Job, run_id: int, found: Run | None, timeout_ms: int) -> str:
    what = f"run {run_id} of job {job.id} ({job.name})"
    if found is None:
        return f"{what} is gone from the log: nobody can tell how it ended"
    if found.status is RunStatus.REQUESTED:
        return (
            f"{what} was taken up by no node within {words.lasting(timeout_ms)}, and still waits: does a daemon with "
            "jobs.enabled run?"
        )
    if found.status is RunStatus.RUNNING:
        return f"{what} still goes on at {found.node_id} after {words.lasting(timeout_ms)}: `outboxd jobs log {job.id}`"
    says = ": ".join(text for text in (found.exception, found.message) if text)
    took_ms = telling.took_ms(found)
    took = "" if took_ms is None else f" after {words.lasting(took_ms)}"
    where = f" at {found.node_id}" if found.node_id else ""
    return f"{what} {_PAST[found.status]}{where}{took}" + (f": {says}" if says else "")


_PAST = {
    RunStatus.SUCCEEDED: "succeeded",
    RunStatus.FAILED: "failed",
    RunStatus.SKIPPED: "was skipped",
    RunStatus.INTERRUPTED: "was interrupted",
}
