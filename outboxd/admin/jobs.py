"""Scheduled jobs over HTTP, as `outboxd jobs` has them. GET changes nothing, save where a route says so."""

import re
import time
from collections.abc import Callable
from functools import partial

from flask import Response, g, request

from outboxd import log
from outboxd.admin import fields
from outboxd.admin.access import ANY_TOKEN
from outboxd.admin.api import Route, as_json
from outboxd.admin.fields import Given
from outboxd.admin.source import Source
from outboxd.schedule import book, book_runs, rules, telling
from outboxd.schedule.records import Job, JobStatus
from outboxd.schedule.rules import GREATEST_ID
from outboxd.store.connection import Connection
from outboxd.vitals import JOBS, State

MOST_LISTED = 1000
USUAL_LIMIT = 50

_ID = re.compile(r"[0-9]{1,19}")
_FIELDS = tuple(telling.FIELDS)
_NUMBERS = {"executePolicy": (1, 3), "isSync": (0, 1)}

Change = Callable[[Connection, int], Job]


def routes(source: Source) -> list[Route]:
    return [
        Route("GET", "/api/job/list", "sys:job:list", lambda: _list(source)),
        Route("GET", "/api/job/info/<job_id>", "sys:job:list", lambda job_id: _info(source, job_id)),
        Route("GET", "/api/job/log", "sys:job:list", lambda: _log(source)),
        Route("GET", "/api/job/daemonStatus", ANY_TOKEN, lambda: _daemon_status(source)),
        Route("POST", "/api/job/add", "sys:job:add", lambda: _add(source)),
        Route("POST", "/api/job/update", "sys:job:update", lambda: _update(source)),
        Route("POST", "/api/job/delete", "sys:job:delete", lambda: _delete(source)),
        Route("POST", "/api/job/status", "sys:job:update", lambda: _status(source)),
        *_both("runOnce", "sys:job:execute", lambda job_id: _run_once(source, job_id)),
        *_both("pause", "sys:job:pause", lambda job_id: _set(source, job_id, book.pause)),
        *_both("resume", "sys:job:resume", lambda job_id: _set(source, job_id, book.resume)),
    ]


def _both(name: str, permission: str, answer: Callable[..., Response]) -> list[Route]:
    """A change that may be made by GET, too, for who has a browser's address line only."""
    rule = f"/api/job/{name}/<job_id>"
    return [Route(method, rule, permission, answer, changes=True) for method in ("GET", "POST")]


def _query(*names: str) -> Given:
    return fields.of_query(request.query_string.decode("latin-1"), names)


def _body(*names: str) -> Given:
    return fields.of_body(request.get_data(), request.headers.get("Content-Type", ""), names)


def _nothing_more() -> None:
    """The path says all of it: a body is empty, or an empty object."""
    _query()
    if request.get_data():
        _body()


def _id_in_path(text: str) -> int:
    if _ID.fullmatch(text) is None:
        raise fields.bad("the id in the path is no whole number", "GET /api/job/list tells the ids")
    return int(text)


def _id_in(given: Given, name: str = "id") -> int:
    found = fields.whole(given, name, GREATEST_ID)
    if found is None:
        raise fields.bad(f"no {name} is given", f'write {{"{name}": ...}}; GET /api/job/list tells the ids')
    return found


def _number(given: Given, name: str, least: int, most: int) -> int | None:
    return fields.whole(given, name, most, least)


def _list(source: Source) -> Response:
    given = _query("name", "status", "limit", "afterId")
    limit = _number(given, "limit", 1, MOST_LISTED) or USUAL_LIMIT
    after_id = _number(given, "afterId", 0, GREATEST_ID) or 0
    status = _number(given, "status", 0, 2)
    with source.desks.session(source.config.database) as connection:
        page = book.page(connection, part=given.get("name"), status=status, limit=limit, after_id=after_id)
    return as_json(telling.list_document(page))


def _info(source: Source, job_id: str) -> Response:
    _query()
    with source.desks.session(source.config.database) as connection:
        job = book.get(connection, _id_in_path(job_id))
        now_ms = book.now_ms(connection)
    return as_json(telling.info_document(job, now_ms))


def _log(source: Source) -> Response:
    given = _query("jobId", "status", "from", "to", "limit", "beforeId")
    status = fields.text(given, "status")
    limit = _number(given, "limit", 1, MOST_LISTED) or USUAL_LIMIT
    before_id = _number(given, "beforeId", 0, GREATEST_ID)
    since, until = fields.instant(given, "from"), fields.instant(given, "to")
    with source.desks.session(source.config.database) as connection:
        now_ms = book.now_ms(connection)
        wanted = book_runs.LogFilter(
            job_id=_number(given, "jobId", 1, GREATEST_ID),
            status=None if status is None else book_runs.run_status_named(status),
            since_ms=None if since is None else since.epoch_ms(now_ms),
            until_ms=None if until is None else until.epoch_ms(now_ms),
        )
        runs, next_id = book_runs.log_page(connection, wanted, limit, before_id)
    return as_json({"runs": [telling.run_document(run) for run in runs], "nextBeforeId": next_id})


def _daemon_status(source: Source) -> Response:
    """Of this node's jobs role: the jobs that it has ticks of, and since when its process runs."""
    _query()
    board = source.board
    views = [board.read(index) for index in range(len(board)) if board.name(index) == JOBS]
    runs = any(view.state is State.RUNNING for view in views)
    ids: list[int] = []
    start_ms = None
    if runs:
        start_ms = round((time.time() - time.monotonic() + views[0].started_s) * 1000)
        with source.desks.session(source.config.database) as connection:
            ids = book.mounted(connection)
    return as_json({"running": runs, "jobIds": ids, "startTime": start_ms})


# changes


def _written(given: Given) -> dict[str, object]:
    """What is given of a job, by the names of rules.NewJob."""
    found: dict[str, object] = {}
    for name, field in telling.FIELDS.items():
        if name in _NUMBERS:
            value: object = given.get(name)
            if type(value) is not int:  # of a number, the rules know what each means
                value = _number(given, name, *_NUMBERS[name])
        else:
            value = fields.text(given, name)
        if value is not None:
            found[field] = value
    return found


def _add(source: Source) -> Response:
    given = _body(*_FIELDS, "status")
    _number(given, "status", 0, 2)  # a form may send it along: whatever it says, a new job is unpublished
    written = _written(given)
    for name in ("name", "cronExpression", "url"):
        if telling.FIELDS[name] not in written:
            raise fields.bad(f"no {name} is given", "a job needs name, cronExpression and url")
    with source.desks.session(source.config.database) as connection:
        job = rules.NewJob(**written)  # type: ignore[arg-type]  # _written has looked
        job_id = book.add(connection, job)
    return _changed(job_id, JobStatus.UNPUBLISHED, telling.added(job_id, job.name))


def _update(source: Source) -> Response:
    given = _body("id", *_FIELDS)
    job_id, written = _id_in(given), _written(given)
    if not written:
        raise fields.bad("nothing is to be changed", f"write one of {', '.join(_FIELDS)}")
    with source.desks.session(source.config.database) as connection:
        result = book.update(connection, job_id, written)
    return _changed(job_id, result.job.status, telling.updated(result))


def _delete(source: Source) -> Response:
    job_id = _id_in(_body("id"))
    with source.desks.session(source.config.database) as connection:
        job = book.delete(connection, job_id)
    return _changed(job.id, job.status, telling.deleted(job))


def _status(source: Source) -> Response:
    given = _body("id", "status")
    job_id, status = _id_in(given), _number(given, "status", 0, 2)
    if status is None:
        raise fields.bad("no status is given", "write 0 (unpublished), 1 (running) or 2 (paused)")
    return _set_status(source, job_id, partial(book.set_status, status=status))


def _set(source: Source, job_id: str, change: Change) -> Response:
    _nothing_more()
    return _set_status(source, _id_in_path(job_id), change)


def _set_status(source: Source, job_id: int, change: Change) -> Response:
    with source.desks.session(source.config.database) as connection:
        job = change(connection, job_id)
    return _changed(job.id, job.status, telling.status_set(job))


def _run_once(source: Source, job_id: str) -> Response:
    _nothing_more()
    by = f"{g.who}@{source.config.node_id}"
    with source.desks.session(source.config.database) as connection:
        job = book.get(connection, _id_in_path(job_id))
        run_id = book_runs.request_run(connection, job.id, by)
    return _changed(job.id, job.status, telling.requested(job, run_id), runId=run_id)


def _changed(job_id: int, status: JobStatus, says: str, **more: object) -> Response:
    log.info(log.ADMIN_CHANGED, by=g.who, what=says)
    return as_json(telling.changed_document(job_id, status, says, **more))
