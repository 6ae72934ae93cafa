"""The admin API lists, changes, starts and stops jobs, and asks for runs of them."""

from collections.abc import Iterator
from typing import Any

import pytest

from outboxd.schedule import book_runs
from outboxd.schedule.rules import MOST_WAITING
from outboxd.store.connection import Connection
from tests.services.admin import Answer
from tests.services.admin_jobs import NEW, NO_JOBS, YEARLY, add, emptied, info
from tests.services.admin_running import Running, ok, running_in

CRON, BAD_CRON = "0 30 2 * * *", "30 2 * * *"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_in(tmp_path_factory.mktemp("jobs"), sections=NO_JOBS) as made:
        yield made


@pytest.fixture
def jobs(running: Running) -> Connection:
    """To the tables, without a job and without a run."""
    return emptied(running)


def runs(running: Running, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ok(running.owner.get(f"/api/job/log{query}"))["runs"]
    return found


def said(running: Running, answer: Answer) -> str:
    """What a change answers; the log has it, too, with who did it."""
    (text,) = ok(answer)["says"]
    line = running.daemon.admin_lines("admin_changed")[-1]
    assert (line["by"], line["what"]) == ("token_file", text)
    return str(text)


def test_a_new_job_is_unpublished_whatever_the_form_says(running: Running, jobs: Connection) -> None:
    answer = running.token.post("/api/job/add", {**NEW, "params": "p", "executePolicy": 2, "isSync": 0, "status": 1})
    assert (ok(answer)["status"], ok(answer)["statusText"]) == (0, "unpublished")
    key = ok(answer)["id"]
    assert said(running, answer) == f"job {key} (nightly) is added, unpublished: it has no ticks until it is resumed"
    found = info(running, key)
    assert 1_700_000_000_000 < found["createdAt"] == found["updatedAt"]
    assert len(found["nextTimes"]) == 5
    assert found == {
        "id": key, "name": "nightly", "cronExpression": YEARLY, "url": "HelloWorld", "params": "p", "remark": "",
        "executePolicy": 2, "executePolicyText": "single", "isSync": 0, "isSyncText": "asynchronous",
        "status": 0, "statusText": "unpublished", "createdAt": found["createdAt"], "updatedAt": found["updatedAt"],
        "nextTimes": found["nextTimes"], "cronProblem": None,
    }  # fmt: skip


def test_jobs_are_listed_by_pages(running: Running, jobs: Connection) -> None:
    """As the command lists them."""
    keys = [add(running, name=name) for name in ("alpha", "beta", "betamax")]
    ok(running.token.post("/api/job/status", {"id": keys[1], "status": 1}))
    page = ok(running.token.get("/api/job/list?name=BETA&limit=1"))
    assert (page["count"], [job["id"] for job in page["jobs"]], page["nextAfterId"]) == (2, [keys[1]], keys[1])
    assert "nextTimes" not in page["jobs"][0]
    rest = ok(running.token.get(f"/api/job/list?name=BETA&limit=1&afterId={keys[1]}"))
    assert ([job["id"] for job in rest["jobs"]], rest["nextAfterId"]) == ([keys[2]], None)
    assert [job["statusText"] for job in ok(running.token.get("/api/job/list?status=1"))["jobs"]] == ["running"]
    assert running.cli("jobs", "list", "--json").json == ok(running.owner.get("/api/job/list"))


def test_states_follow_each_other(running: Running, jobs: Connection) -> None:
    """By status, by pause and resume, by GET and by POST."""
    key = add(running)
    answer = running.token.post("/api/job/status", {"id": key, "status": 1})
    assert said(running, answer).endswith("is running: it has ticks on every node, within seconds")
    for ask in (running.token.get, lambda target: running.token.ask("POST", target)):
        assert ok(ask(f"/api/job/pause/{key}"))["statusText"] == "paused"
        assert info(running, key)["status"] == 2
        assert ok(ask(f"/api/job/resume/{key}"))["statusText"] == "running"
        assert info(running, key)["status"] == 1
    answer = running.token.post(f"/api/job/pause/{key}", {})
    assert said(running, answer).endswith("it has no ticks any more; a run that goes on ends by itself")
    assert ok(running.token.post("/api/job/status", {"id": key, "status": 0}))["status"] == 0


def test_an_update_changes_what_it_names(running: Running, jobs: Connection) -> None:
    key = add(running, remark="old")
    before = info(running, key)
    answer = running.token.post("/api/job/update", {"id": key, "remark": "new", "isSync": 0, "name": "nightly"})
    assert said(running, answer) == f"job {key} (nightly) is updated (is_sync, remark); it is unpublished"
    now = info(running, key)
    assert now["updatedAt"] > before["updatedAt"]
    assert {name for name in now if now[name] != before[name]} == {"isSync", "isSyncText", "remark", "updatedAt"}


def test_a_wrong_cron_stops_a_running_job_and_says_so(running: Running, jobs: Connection) -> None:
    """It cannot run as it is written; what was written is kept to be mended."""
    key = add(running)
    ok(running.token.get(f"/api/job/resume/{key}"))
    answer = running.token.post("/api/job/update", {"id": key, "cronExpression": BAD_CRON})
    assert (ok(answer)["status"], ok(answer)["statusText"]) == (2, "paused")
    assert "it was running and is paused now, since its cron expression cannot be used: 5 fields" in said(
        running, answer
    )
    found = info(running, key)
    assert (found["status"], found["cronExpression"], found["nextTimes"]) == (2, BAD_CRON, [])
    assert "put the seconds in front: 0 30 2 * * *" in found["cronProblem"]
    tries = [
        running.token.get(f"/api/job/resume/{key}"),
        running.token.post("/api/job/status", {"id": key, "status": 1}),
        running.token.post("/api/job/update", {"id": key, "cronExpression": BAD_CRON}),
        running.token.post("/api/job/add", {**NEW, "cronExpression": BAD_CRON}),
    ]
    assert [(one.status, "six are needed" in one.error) for one in tries] == [(400, True)] * 4
    assert info(running, key)["status"] == 2
    ok(running.token.post("/api/job/update", {"id": key, "cronExpression": CRON}))
    assert ok(running.token.get(f"/api/job/resume/{key}"))["status"] == 1


def test_a_run_is_asked_for_in_any_state_and_changes_none(running: Running, jobs: Connection) -> None:
    """The line in the log is what a node takes up."""
    key = add(running)
    before = info(running, key)
    answer = running.token.get(f"/api/job/runOnce/{key}")
    run_id = ok(answer)["runId"]
    assert said(running, answer).startswith(f"run {run_id} of job {key} (nightly) is asked for")
    run = book_runs.run(jobs, run_id)
    assert run is not None
    assert (run.job_id, run.tick_ms, run.triggered_by) == (key, None, "token_file@node")
    assert ok(running.owner.ask("POST", f"/api/job/runOnce/{key}"))["runId"] > run_id
    assert info(running, key) == {**before, "nextTimes": info(running, key)["nextTimes"]}
    (line,) = [one for one in runs(running, f"?jobId={key}") if one["id"] == run_id]
    assert (line["name"], line["trigger"], line["jobId"]) == ("nightly", "token_file@node", key)


def test_too_many_that_wait_are_a_conflict(running: Running, jobs: Connection) -> None:
    key = add(running)
    jobs.execute(f"UPDATE outboxd_job SET deleted_at_ms = 1 WHERE id = {key}")  # no node takes these up
    for _ in range(MOST_WAITING):
        jobs.execute(
            f"INSERT INTO outboxd_job_log (job_id, name, fire_at_ms, status) VALUES ({key}, 'n', 1, 'requested')"
        )
    jobs.execute(f"UPDATE outboxd_job SET deleted_at_ms = 0 WHERE id = {key}")
    refusal = running.token.ask("POST", f"/api/job/runOnce/{key}")
    assert (refusal.status, "wait for a node already" in refusal.error) == (409, True)


def test_a_deleted_job_is_unmounted_and_gone(running: Running, jobs: Connection) -> None:
    key = add(running)
    ok(running.token.get(f"/api/job/resume/{key}"))
    answer = running.token.post("/api/job/delete", {"id": key})
    assert ok(answer)["status"] == 0
    assert said(running, answer).endswith("is deleted: it has no ticks any more, its log stays")
    assert jobs.query(f"SELECT status, deleted_at_ms > 0 FROM outboxd_job WHERE id = {key}") == [(0, 1)]
    assert ok(running.owner.get("/api/job/list"))["jobs"] == []
    for again in (
        running.token.post("/api/job/delete", {"id": key}),
        running.token.get(f"/api/job/info/{key}"),
        running.token.get(f"/api/job/runOnce/{key}"),
        running.token.get(f"/api/job/resume/{key}"),
    ):
        assert (again.status, "was deleted" in again.error) == (404, True)
        assert again.json["todo"] == "GET /api/job/list shows those that are there"


def test_the_log_is_filtered_and_paged(running: Running, jobs: Connection) -> None:
    """By job, status and time: epoch milliseconds, an instant, so long ago."""
    sql = "INSERT INTO outboxd_job_log (job_id, name, tick_ms, fire_at_ms, status, node_id, started_at_ms, duration_ms)"
    for number in range(4):
        at_ms, status = 1_700_000_000_000 + number * 1000, "failed" if number % 2 else "succeeded"
        jobs.execute(f"{sql} VALUES (7, 'n', {at_ms}, {at_ms}, '{status}', 'node', {at_ms}, {number})")
    every = runs(running)
    assert [run["durationMs"] for run in every] == [3, 2, 1, 0]
    assert [run["durationMs"] for run in runs(running, "?status=failed&jobId=7")] == [3, 1]
    assert [run["durationMs"] for run in runs(running, "?from=1700000001000&to=1700000003000")] == [2, 1]
    assert len(runs(running, "?to=2023-11-14T22:13:21Z")) == 1
    assert runs(running, "?from=1h") == []
    page = ok(running.owner.get("/api/job/log?limit=3"))
    assert page["nextBeforeId"] == every[2]["id"]
    assert runs(running, f"?limit=3&beforeId={page['nextBeforeId']}") == every[3:]
    cut_off = "VALUES (8, 'n', 5, 5, 'interrupted', 'node', 5, 0)"
    jobs.execute(f"{sql} {cut_off}")
    assert [run["durationMs"] for run in runs(running, "?jobId=8")] == [None], "by a crash: nobody knows"
    assert every[0] == {
        "id": every[0]["id"], "jobId": 7, "name": "n", "fireAt": 1_700_000_003_000, "status": "failed",
        "trigger": "cron", "nodeId": "node", "startedAt": 1_700_000_003_000, "durationMs": 3, "message": "",
        "exception": "",
    }  # fmt: skip
