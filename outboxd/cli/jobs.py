"""`outboxd jobs`: scheduled jobs listed and shown, when they are due, what became of their runs.

What changes jobs is in jobs_change.py, and one run in jobs_run.py.
"""

import time

import click

from outboxd.cli import jobs_change, jobs_run, show, values
from outboxd.cli.shared import EXIT_DONE, EXIT_USAGE, Command, Options
from outboxd.errors import CronError
from outboxd.explain import words
from outboxd.schedule import book, book_runs, cron, telling
from outboxd.schedule.book_runs import LogFilter
from outboxd.schedule.records import Job, JobStatus, Run, RunStatus
from outboxd.schedule.rules import GREATEST_ID
from outboxd.schedule.telling import POLICY_TEXTS, STATUS_TEXTS, SYNC_TEXTS
from outboxd.store.connection import Connection

USUAL_LIMIT = 50
MOST_LISTED = 1000
MOST_NEXT = 100
LAST_RUNS = 5

_STATUSES = {text: status for status, text in STATUS_TEXTS.items()}
JOB_ID = click.IntRange(1, GREATEST_ID)
LIMIT = click.IntRange(1, MOST_LISTED)


@click.group(invoke_without_command=True)
@click.pass_context
def jobs(ctx: click.Context) -> int:
    """List, add, change, start, stop and run scheduled jobs; read their log.

    A new job is unpublished; `resume` gives it ticks, `pause` takes them away, on every node within seconds.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
        return EXIT_USAGE
    return EXIT_DONE


@click.command("list", cls=Command)
@click.option("--name", metavar="TEXT", help="A part of the name, in any case.")
@click.option("--status", type=click.Choice(list(_STATUSES)), help="Those in this state only.")
@click.option("--limit", type=LIMIT, default=USUAL_LIMIT, metavar="N", help="So many at the most (50).")
@click.option("--json", "wants_json", is_flag=True, help="Print them as JSON.")
@click.pass_obj
def list_(options: Options, name: str | None, status: str | None, limit: int, wants_json: bool) -> None:
    """List jobs, in the order of their ids."""
    wanted = None if status is None else _STATUSES[status]
    with options.connection() as connection:
        page = book.page(connection, part=name, status=wanted, limit=limit)
        now_ms = book.now_ms(connection)
    if wants_json:
        show.as_json(telling.list_document(page))
        return
    if not page.jobs:
        show.line("there is no job" + (" that matches" if name or status else ""))
        return
    titles = ("id", "status", "next", "cron", "policy", "name", "url")
    show.table(titles, [_row(job, now_ms) for job in page.jobs], ["id"])
    if page.count > len(page.jobs):
        show.line(f"{len(page.jobs):,} of {page.count:,}; --limit shows more")


@click.command("show", cls=Command)
@click.argument("job_id", metavar="ID", type=JOB_ID)
@click.option("--json", "wants_json", is_flag=True, help="Print it as JSON.")
@click.pass_obj
def show_(options: Options, job_id: int, wants_json: bool) -> None:
    """Show one job: what it does, when it is due next, its last runs."""
    with options.connection() as connection:
        job = book.get(connection, job_id)
        now_ms = book.now_ms(connection)
        runs, _ = book_runs.log_page(connection, LogFilter(job_id=job_id), LAST_RUNS)
    if wants_json:
        show.as_json(telling.info_document(job, now_ms))
        return
    show.line(f"job {job.id}: {job.name}, {STATUS_TEXTS[job.status]}")
    show.line(f"  runs {job.url}, {POLICY_TEXTS[job.execute_policy]}, {SYNC_TEXTS[job.is_sync]}")
    show.line(f"  cron {job.cron_expression}; created {words.moment(job.created_at_ms)}")
    times, problem = telling.next_times(job.cron_expression, job.created_at_ms, now_ms)
    for at_ms in times:
        show.line(f"    {_local(job, at_ms)}, in {words.lasting(at_ms - now_ms)}")
    if problem:
        show.line(f"    it cannot be used: {problem}")
    if job.params:
        show.line(f"  params {job.params}")
    if job.remark:
        show.line(f"  remark {job.remark}")
    if runs:
        show.line("  last runs:")
        show.table(_RUN_TITLES, [_run_row(run) for run in runs], _RUN_NUMBERS)


class _Next(Command):
    """A command whose argument may look like an option: every field of an expression may be wrong in that way."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.possibilities or error.option_name[1:2].isalpha() or error.option_name.startswith("--"):
                raise
            hint = "put -- before an expression that begins with -"
            raise click.UsageError(f"{error.format_message()} {hint}: outboxd jobs next -- EXPRESSION", ctx) from None


@click.command("next", cls=_Next)
@click.argument("what", metavar="ID|EXPRESSION")
@click.option("--count", type=click.IntRange(1, MOST_NEXT), default=telling.NEXT, metavar="N", help="So many (5).")
@click.option("--json", "wants_json", is_flag=True, help="Print them as JSON.")
@click.pass_obj
def next_(options: Options, what: str, count: int, wants_json: bool) -> None:
    """Tell when a job is due next, or a cron expression, by this machine's clock and time zone. Quote an EXPRESSION."""
    created_ms, now_ms = 0, round(time.time() * 1000)
    expression = what
    if what.isdigit():
        with options.connection() as connection:
            job = _job_of(connection, what)
        expression, created_ms = job.cron_expression, job.created_at_ms
    elif "@every" in what.lower():
        created_ms = now_ms  # those of a job that would be made now
    try:
        schedule = cron.parse(expression, created_ms // 1000)
    except CronError as error:
        raise click.UsageError(f"{expression!r} is no cron expression: {error}") from None
    times = schedule.upcoming(now_ms // 1000, count)
    if wants_json:
        show.as_json({"cronExpression": expression, "nextTimes": [1000 * at_s for at_s in times]})
        return
    for at_s in times:
        show.line(f"{schedule.local_text(at_s)}, in {words.lasting(1000 * at_s - now_ms)}")
    if not times:
        show.line("never: no such time comes within 50 years")


@click.command(cls=Command)
@click.argument("job_id", metavar="[ID]", type=JOB_ID, required=False)
@click.option("--status", type=click.Choice([status.value for status in RunStatus]), help="Of those only.")
@click.option("--since", callback=values.read_when, metavar="TIME", help="Due since: 2h (ago), 2026-11-29T16:57Z.")
@click.option("--until", callback=values.read_when, metavar="TIME", help="Due before.")
@click.option("--limit", type=LIMIT, default=USUAL_LIMIT, metavar="N", help="So many at the most (50).")
@click.option("--json", "wants_json", is_flag=True, help="Print them as JSON.")
@click.pass_obj
def log(
    options: Options,
    job_id: int | None,
    status: str | None,
    since: words.When | None,
    until: words.When | None,
    limit: int,
    wants_json: bool,
) -> None:
    """List runs, of all jobs or of one, newest first."""
    with options.connection() as connection:
        now_ms = book.now_ms(connection)
        wanted = LogFilter(
            job_id=job_id,
            status=None if status is None else RunStatus(status),
            since_ms=since.epoch_ms(now_ms) if since else None,
            until_ms=until.epoch_ms(now_ms) if until else None,
        )
        runs, before_id = book_runs.log_page(connection, wanted, limit)
        while len(runs) < limit and before_id is not None:
            more, before_id = book_runs.log_page(connection, wanted, limit - len(runs), before_id)
            runs += more
    if wants_json:
        show.as_json({"runs": [telling.run_document(run) for run in runs], "nextBeforeId": before_id})
    elif runs:
        show.table(_RUN_TITLES, [_run_row(run) for run in runs], _RUN_NUMBERS)
    else:
        show.line("no run matches")


def _job_of(connection: Connection, digits: str) -> Job:
    return book.get(connection, min(int(digits), GREATEST_ID))


def _row(job: Job, now_ms: int) -> tuple[str, ...]:
    due = "-"
    if job.status is JobStatus.RUNNING:
        times, problem = telling.next_times(job.cron_expression, job.created_at_ms, now_ms, 1)
        due = f"in {words.lasting(times[0] - now_ms)}" if times else "bad cron" if problem else "never"
    policy = POLICY_TEXTS[job.execute_policy] + ("" if job.is_sync else ", async")
    return (str(job.id), STATUS_TEXTS[job.status], due, job.cron_expression, policy, job.name, job.url)


def _local(job: Job, at_ms: int) -> str:
    return cron.parse(job.cron_expression, job.created_at_ms // 1000).local_text(at_ms // 1000)


_RUN_TITLES = ("run", "job", "name", "due", "status", "took", "by", "node", "says")
_RUN_NUMBERS = ("run", "job")


def _run_row(run: Run) -> tuple[str, ...]:
    took_ms = telling.took_ms(run)
    took = "-" if took_ms is None else words.lasting(took_ms)
    says = run.exception or run.message
    names = (run.triggered_by, run.node_id or "-")
    return (str(run.id), str(run.job_id), run.name, words.moment(run.fire_at_ms), run.status.value, took, *names, says)


for _command in (
    list_, show_, next_, jobs_change.add, jobs_change.update, jobs_change.delete, jobs_change.pause, jobs_change.resume,
    jobs_run.run, log,
):  # fmt: skip
    jobs.add_command(_command)
