"""What programs and people are told of jobs and their runs, the same on the command line and over HTTP. Pure.

Names in documents are those of the job API (docs/jobs.md). Times are UTC epoch milliseconds, null where there is none.
"""

from outboxd.errors import CronError
from outboxd.schedule import cron
from outboxd.schedule.book import Page, Updated
from outboxd.schedule.records import Job, JobStatus, Policy, Run, RunStatus
from outboxd.schedule.rules import called, named

STATUS_TEXTS = {JobStatus.UNPUBLISHED: "unpublished", JobStatus.RUNNING: "running", JobStatus.PAUSED: "paused"}
POLICY_TEXTS = {Policy.IMMEDIATE: "immediate", Policy.SINGLE: "single", Policy.SKIP: "skip"}
SYNC_TEXTS = {True: "synchronous", False: "asynchronous"}
NEXT = 5
"""Times that are told of a job."""

FIELDS = {
    "name": "name",
    "cronExpression": "cron_expression",
    "url": "url",
    "params": "params",
    "executePolicy": "execute_policy",
    "isSync": "is_sync",
    "remark": "remark",
}
"""What an operator may write of a job: the API's name of it, and rules.NewJob's."""


def job_document(job: Job) -> dict[str, object]:
    return {
        "id": job.id,
        "name": job.name,
        "cronExpression": job.cron_expression,
        "url": job.url,
        "params": job.params,
        "executePolicy": int(job.execute_policy),
        "executePolicyText": POLICY_TEXTS[job.execute_policy],
        "isSync": int(job.is_sync),
        "isSyncText": SYNC_TEXTS[job.is_sync],
        "status": int(job.status),
        "statusText": STATUS_TEXTS[job.status],
        "remark": job.remark,
        "createdAt": job.created_at_ms,
        "updatedAt": job.updated_at_ms,
    }


def info_document(job: Job, now_ms: int) -> dict[str, object]:
    """With what its expression means: the next few times, whether or not it is running, or why there are none."""
    times, problem = next_times(job.cron_expression, job.created_at_ms, now_ms)
    return {**job_document(job), "nextTimes": times, "cronProblem": problem or None}


def next_times(expression: str, created_at_ms: int, now_ms: int, count: int = NEXT) -> tuple[list[int], str]:
    """(UTC epoch milliseconds, why there are none)."""
    try:
        schedule = cron.parse(expression, created_at_ms // 1000)
    except CronError as error:
        return [], str(error)
    return [1000 * at_s for at_s in schedule.upcoming(now_ms // 1000, count)], ""


def list_document(page: Page) -> dict[str, object]:
    jobs = [job_document(job) for job in page.jobs]
    return {"count": page.count, "jobs": jobs, "nextAfterId": page.next_after_id}


def took_ms(run: Run) -> int | None:
    """How long a run took; None where it has not ended, never began, or was cut off before anybody could tell."""
    if run.status in (RunStatus.REQUESTED, RunStatus.RUNNING) or not run.started_at_ms:
        return None
    return None if run.status is RunStatus.INTERRUPTED and not run.duration_ms else run.duration_ms


def run_document(run: Run) -> dict[str, object]:
    return {
        "id": run.id,
        "jobId": run.job_id,
        "name": run.name,
        "fireAt": run.fire_at_ms,
        "status": run.status.value,
        "trigger": run.triggered_by,
        "nodeId": run.node_id or None,
        "startedAt": run.started_at_ms or None,
        "durationMs": took_ms(run),
        "message": run.message,
        "exception": run.exception,
    }


def changed_document(job_id: int, status: JobStatus, says: str, **more: object) -> dict[str, object]:
    """What a change of a job answers."""
    return {"id": job_id, **more, "status": int(status), "statusText": STATUS_TEXTS[status], "says": [says]}


# sentences


def added(job_id: int, name: str) -> str:
    return f"{called(job_id, name)} is added, unpublished: it has no ticks until it is resumed"


def updated(result: Updated) -> str:
    job, what = result.job, ", ".join(result.changed) or "nothing differs"
    if result.bad_cron:
        why = f"it was running and is paused now, since its cron expression cannot be used: {result.bad_cron}"
        return f"{named(job)} is updated ({what}); {why}"
    return f"{named(job)} is updated ({what}); it is {STATUS_TEXTS[job.status]}"


def status_set(job: Job) -> str:
    what = "it has ticks on every node, within seconds"
    if job.status is not JobStatus.RUNNING:
        what = "it has no ticks any more; a run that goes on ends by itself"
    return f"{named(job)} is {STATUS_TEXTS[job.status]}: {what}"


def deleted(job: Job) -> str:
    return f"{named(job)} is deleted: it has no ticks any more, its log stays"


def requested(job: Job, run_id: int) -> str:
    return f"run {run_id} of {named(job)} is asked for: a node takes it up within seconds"
