"""What strangers and slips send to the job API is refused with a reason, or is text and nothing else."""

import json
from collections.abc import Iterator

import pytest

from outboxd.store.connection import Connection
from tests.services.admin import JSON
from tests.services.admin_jobs import NEW, NO_JOBS, YEARLY, add, emptied, info
from tests.services.admin_running import Running, ok, running_in


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_in(tmp_path_factory.mktemp("jobs"), sections=NO_JOBS) as made:
        yield made


@pytest.fixture
def jobs(running: Running) -> Connection:
    """To the tables, without a job and without a run."""
    return emptied(running)


@pytest.mark.parametrize(
    ("target", "status", "told"),
    [
        ("/api/job/list?nme=x", 400, "did you mean name?"),
        ("/api/job/list?status=3", 400, "from 0 to 2"),
        ("/api/job/list?status=running", 400, "from 0 to 2"),
        ("/api/job/list?limit=0", 400, "from 1 to 1,000"),
        ("/api/job/list?limit=99999999999999999999999", 400, "from 1 to 1,000"),
        ("/api/job/list?name=a&name=b", 400, "given twice"),
        ("/api/job/info/1?x=1", 400, "unknown name x"),
        ("/api/job/info/x", 400, "no whole number"),
        ("/api/job/info/-1", 400, "no whole number"),
        ("/api/job/info/1%27%20OR%201=1", 400, "no whole number"),
        ("/api/job/info/%00", 400, "no whole number"),
        ("/api/job/info/%D9%A3", 400, "no whole number"),
        ("/api/job/info/9999999999999999999", 404, "there is no job"),
        ("/api/job/info/99999999999999999999999", 400, "no whole number"),
        ("/api/job/info/1/2", 404, "nothing here"),
        ("/api/job/info/", 404, "nothing here"),
        ("/api/job/log?status=bad", 400, "no run has that status"),
        ("/api/job/log?from=yesterday", 400, "is no time"),
        ("/api/job/log?jobId=0", 400, "no whole number"),
        ("/api/job/runOnce/999?now=1", 400, "unknown name now"),
        ("/api/job/runOnce/999", 404, "there is no job"),
        ("/api/job/daemonStatus?x=1", 400, "unknown name x"),
    ],
)
def test_a_question_that_cannot_be_understood_is_told_why(
    running: Running, target: str, status: int, told: str
) -> None:
    answer = running.token.get(target)
    assert (answer.status, told in answer.error) == (status, True), answer


HOSTILE = "<script>alert(1)</script>'); DROP TABLE outboxd_job; -- \\ % {now} :id 房间 🚀"


def test_what_is_hostile_is_text_and_nothing_else(running: Running, jobs: Connection) -> None:
    """It comes back as it was sent, as JSON that no browser takes for a page."""
    key = add(running, name=HOSTILE[:64], params=HOSTILE, remark=HOSTILE)
    for target in (f"/api/job/info/{key}", f"/api/job/list?name={'%3Cscript%3E'}"):
        answer = running.owner.get(target)
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert info(running, key)["params"] == HOSTILE
    assert ok(running.owner.get("/api/job/list?name=%3Cscript%3E"))["count"] == 1
    ok(running.token.post("/api/job/update", {"id": key, "name": "' OR '1'='1"}))
    assert info(running, key)["name"] == "' OR '1'='1"


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        (b"x" * 10_000_000, 413, "longer than 64 KiB"),
        (b"{", 400, "no JSON"),
        (b"", 400, "no JSON"),
        (b"[]", 400, "no object"),
        (b"[" * 30_000 + b"]" * 30_000, 400, "no JSON"),
        (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, 400, "no JSON"),
        (b'{"name": "\xff"}', 400, "no JSON"),
        (b'{"name": "\\ud800", "cronExpression": "@daily", "url": "H"}', 400, "no JSON"),
        ({"cron_expression": YEARLY}, 400, "did you mean cronExpression?"),
        ({"id": 3}, 400, "unknown name id"),
        ({}, 400, "no name is given"),
        ({"name": "n", "url": "H"}, 400, "no cronExpression is given"),
        ({**NEW, "name": ""}, 400, "the name is empty"),
        ({**NEW, "name": "   "}, 400, "the name is empty"),
        ({**NEW, "name": " n"}, 400, "begins or ends with a space"),
        ({**NEW, "name": "a\u0000b"}, 400, "control character U+0000"),
        ({**NEW, "name": "a\nb"}, 400, "control character U+000A"),
        ({**NEW, "name": "a\u202eb"}, 400, "control character U+202E"),
        ({**NEW, "name": "x" * 65}, 400, "64 is the most"),
        ({**NEW, "name": 7}, 400, "name is no text"),
        ({**NEW, "name": ["n"]}, 400, "name is no text"),
        ({**NEW, "params": {"a": 1}}, 400, "params is no text"),
        ({**NEW, "params": "\u0007"}, 400, "control character"),
        ({**NEW, "params": "x" * 4097}, 400, "4,096 is the most"),
        ({**NEW, "remark": "x" * 513}, 400, "512 is the most"),
        ({**NEW, "url": "x" * 1025}, 400, "1,024 is the most"),
        ({**NEW, "cronExpression": "0 0 0 * * *" + " " * 250}, 400, "255 is the most"),
        ({**NEW, "cronExpression": "*/0 * * * * *"}, 400, "cannot be used"),
        ({**NEW, "url": "../../etc/passwd"}, 400, "cannot be called"),
        ({**NEW, "url": "file:///etc/passwd"}, 400, "cannot be called"),
        ({**NEW, "url": "javascript:alert(1)"}, 400, "cannot be called"),
        ({**NEW, "url": "http://"}, 400, "names no host"),
        ({**NEW, "url": "http://h:99999/"}, 400, "port"),
        ({**NEW, "url": "http://h/a b"}, 400, "percent-encode"),
        ({**NEW, "url": "http://u:pw-of-the-test@h/"}, 400, "names a user or a password"),
        ({**NEW, "url": "http://h/#x"}, 400, "fragment"),
        ({**NEW, "url": "Hello World"}, 400, "no handler's name"),
        ({**NEW, "url": "1Hello"}, 400, "no handler's name"),
        ({**NEW, "executePolicy": 0}, 400, "the execute policy is 0"),
        ({**NEW, "executePolicy": 4}, 400, "the execute policy is 4"),
        ({**NEW, "executePolicy": True}, 400, "no whole number from 1 to 3"),
        ({**NEW, "executePolicy": 1.5}, 400, "no whole number"),
        ({**NEW, "isSync": 2}, 400, "synchronous is 2"),
        ({**NEW, "isSync": True}, 400, "no whole number from 0 to 1"),
    ],
    ids=range(44),
)
def test_a_job_that_cannot_be_is_refused_with_the_reason(
    running: Running, jobs: Connection, body: object, status: int, told: str
) -> None:
    """And nothing of a password is repeated."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = running.token.ask("POST", "/api/job/add", raw, JSON)
    assert (answer.status, told in answer.error) == (status, True), answer
    assert b"pw-of-the-test" not in answer.body
    assert b"Traceback" not in answer.body
    assert ok(running.owner.get("/api/job/list"))["count"] == 0


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("update", {"name": "n"}, "no id is given"),
        ("update", {"id": 1}, "nothing is to be changed"),
        ("update", {"id": "1 OR 1=1", "name": "n"}, "no whole number"),
        ("update", {"id": 2**63, "name": "n"}, "no whole number"),
        ("update", {"id": 1, "status": 1}, "unknown name status"),
        ("delete", {"id": [1]}, "no whole number"),
        ("delete", {"ids": [1]}, "did you mean id?"),
        ("status", {"id": 1}, "no status is given"),
        ("status", {"id": 1, "status": 3}, "from 0 to 2"),
        ("runOnce/1", {"params": "x"}, "unknown name params"),
    ],
)
def test_a_change_that_cannot_be_understood_is_told_why(running: Running, path: str, body: object, told: str) -> None:
    answer = running.token.post(f"/api/job/{path}", body)
    assert (answer.status, told in answer.error) == (400, True), answer


def test_a_change_with_a_body_is_json(running: Running, jobs: Connection) -> None:
    key = add(running)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert running.token.ask("POST", "/api/job/add", b"name=n", form).status == 415
    assert running.token.ask("POST", f"/api/job/pause/{key}", b"x=1", form).status == 415
    assert running.token.ask("POST", f"/api/job/pause/{key}", b"", form).status == 200
    assert running.token.ask("DELETE", "/api/job/delete").status == 405
    assert running.token.get("/api/job/delete").status == 405


def test_what_is_to_be_done_is_of_the_job_api(running: Running, jobs: Connection) -> None:
    """Not of another route."""
    answer = running.token.ask("POST", "/api/job/add", b"[]", JSON)
    assert (answer.status, answer.json["todo"]) == (400, 'write {"name": ...} or the like')
    answer = running.token.ask("POST", "/api/job/add", json.dumps({**NEW, "isSync": "x"}).encode(), JSON)
    assert (answer.status, answer.json["todo"]) == (400, "write 0 or 1")


def test_tables_that_are_missing_are_told_with_what_to_do(running: Running, jobs: Connection) -> None:
    """A daemon that was upgraded without `init-db`. Last, after all the others; and no error in the log for it."""
    for table in ("outboxd_job", "outboxd_job_log"):
        jobs.execute(f"ALTER TABLE {table} RENAME TO {table}_away")
    try:
        for target in ("/api/job/list", "/api/job/info/1", "/api/job/log", "/api/job/runOnce/1"):
            refusal = running.token.get(target)
            assert (refusal.status, "run `outboxd init-db`" in refusal.error) == (500, True)
            assert refusal.json["todo"] == "run `outboxd init-db`"
    finally:
        for table in ("outboxd_job", "outboxd_job_log"):
            jobs.execute(f"ALTER TABLE {table}_away RENAME TO {table}")
    assert running.daemon.admin_lines("admin_failed") == []
