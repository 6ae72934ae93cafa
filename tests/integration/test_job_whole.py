"""The job API and the role that runs jobs, together: what a person asks for over HTTP happens in another process."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.services.admin_running import Running, ok, running_in
from tests.services.wait import wait_for

WITHIN_S = 30.0
EVERY_SECOND = "* * * * * *"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_in(tmp_path_factory.mktemp("whole"), sections={"jobs": {}}) as made:
        yield made


def add(running: Running, **fields: object) -> int:
    new = {"name": "whole", "cronExpression": "0 0 0 29 2 *", "url": "HelloWorld", **fields}
    return int(ok(running.token.post("/api/job/add", new))["id"])


def runs(running: Running, job_id: int) -> list[dict[str, Any]]:
    """Newest first."""
    found: list[dict[str, Any]] = ok(running.token.get(f"/api/job/log?jobId={job_id}"))["runs"]
    return found


def ended(running: Running, job_id: int) -> list[dict[str, Any]]:
    return [run for run in runs(running, job_id) if run["status"] not in ("requested", "running")]


@pytest.mark.parametrize("policy", [1, 2, 3])
def test_run_once_of_an_unpublished_job_works_and_changes_no_state(running: Running, policy: int) -> None:
    """It is how a person tries a job before it is let loose."""
    key = add(running, params="there", executePolicy=policy)
    run_id = ok(running.token.post(f"/api/job/runOnce/{key}", {}))["runId"]
    wait_for(lambda: ended(running, key), WITHIN_S, "the run to end")
    (run,) = runs(running, key)
    assert (run["id"], run["status"], run["trigger"]) == (run_id, "succeeded", "token_file@node")
    assert "there" in run["message"]
    assert ok(running.token.get(f"/api/job/info/{key}"))["status"] == 0


def test_a_job_ticks_from_resume_to_delete(running: Running) -> None:
    """Within seconds each, and daemonStatus tells which there are."""
    key = add(running, cronExpression=EVERY_SECOND, executePolicy=2)
    ok(running.token.post(f"/api/job/resume/{key}", {}))
    wait_for(lambda: len(ended(running, key)) >= 3, WITHIN_S, "three ticks")
    status = ok(running.token.get("/api/job/daemonStatus"))
    assert status["running"] is True
    assert key in status["jobIds"]
    assert abs(time.time() * 1000 - status["startTime"]) < 600_000
    nominal = [run["fireAt"] for run in runs(running, key)]
    assert nominal == sorted(set(nominal), reverse=True)
    ok(running.token.post("/api/job/delete", {"id": key}))
    running.daemon.wait_until(
        lambda: [line for line in running.daemon.lines("job_unmounted") if line["job_id"] == key], "the end of it"
    )
    last_ms = runs(running, key)[0]["fireAt"]
    marker = add(running)
    ok(running.token.post(f"/api/job/runOnce/{marker}", {}))
    wait_for(lambda: ended(running, marker), WITHIN_S, "a later run")
    assert runs(running, key)[0]["fireAt"] <= last_ms + 1000, "at most the tick that had begun"


def test_a_wrong_cron_on_an_update_stops_the_ticks(running: Running) -> None:
    """It falls to 2, the answer says so, and the role has no ticks of it any more."""
    key = add(running, cronExpression=EVERY_SECOND)
    ok(running.token.post("/api/job/status", {"id": key, "status": 1}))
    wait_for(lambda: ended(running, key), WITHIN_S, "a tick")
    answer = ok(running.token.post("/api/job/update", {"id": key, "cronExpression": "* * * * *"}))
    assert (answer["status"], answer["statusText"]) == (2, "paused")
    assert "five" in str(answer["says"]) or "six" in str(answer["says"])
    running.daemon.wait_until(
        lambda: [line for line in running.daemon.lines("job_unmounted") if line["job_id"] == key], "the end of it"
    )
