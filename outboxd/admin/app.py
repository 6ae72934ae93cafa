"""The admin role's HTTP application: metrics and health; the API of api.py and dead.py behind its gate; errors as JSON.

Every answer is made whole before its first byte is sent, so a client that reads slowly holds up nobody.
"""

import time
from collections.abc import Mapping
from wsgiref.types import WSGIApplication

from flask import Flask, Response, g, request
from werkzeug.exceptions import HTTPException
from werkzeug.routing import BaseConverter

from outboxd import log
from outboxd.admin import api, dead, jobs
from outboxd.admin.access import OWNER, Asked, Refused, admit, check_host, check_open, check_origin
from outboxd.admin.fields import check_path
from outboxd.admin.source import Source
from outboxd.errors import ConfigError, StoreConflict, StoreRefused, StoreUnavailable
from outboxd.redact import redact
from outboxd.schedule.rules import JobError, NoSuchJob, TooMany
from outboxd.vitals import State

MOST_BODY_BYTES = 64 * 1024
RETRY_AFTER_S = 5
SAID_EVERY_S = 10.0
"""Of failures that nothing expected, one is logged in so long a time."""

_OPEN = frozenset({"metrics", "healthz", "readyz"})
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
_AHEAD = ("Sec-Purpose", "Purpose", "X-Purpose", "X-Moz")
"""Headers of browsers that fetch what may be wanted soon."""
_FORWARDING = ("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip")


class _EventId(BaseConverter):
    """Any text that is not empty, slashes too."""

    regex = r"(?s:.+)"
    part_isolating = False


def make_app(source: Source, is_owner: bool) -> WSGIApplication:
    """One listener's application. is_owner: who asks is the daemon's owner, and may do everything."""
    app = Flask("outboxd", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = MOST_BODY_BYTES
    app.url_map.merge_slashes = False  # no redirects: what is not there is not guessed at
    app.url_map.converters["event_id"] = _EventId
    routes = {route.name: route for route in (*api.routes(source), *dead.routes(source), *jobs.routes(source))}
    _serve_health(app, source)
    for route in routes.values():
        app.add_url_rule(route.rule, route.name, route.answer, methods=[route.method])
    app.before_request(lambda: _gate(source, is_owner, routes))
    app.after_request(_with_headers)
    _tell_errors(app)
    return app


def _gate(source: Source, is_owner: bool, routes: Mapping[str, api.Route]) -> None:
    """Who may come in. Raises Refused."""
    settings, headers = source.config.admin, request.headers
    route = routes.get(request.endpoint or "")
    asked = Asked(
        method=request.method,
        remote=request.remote_addr or "",
        is_forwarded=any(name in headers for name in _FORWARDING),
        host=request.environ.get("HTTP_HOST", ""),
        authorization=headers.get("Authorization", ""),
        origin=headers.get("Origin", ""),
        fetch_site=headers.get("Sec-Fetch-Site", ""),
        purpose=next((headers[name] for name in _AHEAD if name in headers), ""),
        changes=route is not None and route.changes,
    )
    g.who = OWNER
    if not is_owner:
        check_host(settings, asked.host)
        if request.endpoint not in _OPEN:
            check_open(settings)
    check_path(request.environ.get("REQUEST_URI", ""))
    if route is None or request.method == "OPTIONS":  # not found, open, or a question that tells nothing
        return
    if not is_owner:
        g.who = admit(settings, asked, route.permission)
    if route.changes and request.method == "HEAD":
        raise Refused(405, "HEAD changes nothing, and this does", _PLAIN[405][1], {"Allow": "GET, POST, OPTIONS"})
    if asked.is_change:
        check_origin(asked)


def _serve_health(app: Flask, source: Source) -> None:
    @app.get("/healthz")
    def healthz() -> Response:
        return Response("alive\n", mimetype="text/plain")

    @app.get("/readyz")
    def readyz() -> Response:
        reasons = _reasons(source)
        return api.as_json({"ready": not reasons, "reasons": reasons}, 503 if reasons else 200)

    @app.get("/metrics")
    def metrics() -> Response:
        page, content_type = source.exposition.page(request.headers.get("Accept", ""))
        return Response(page, content_type=content_type)


def _reasons(source: Source) -> list[str]:
    """Why this node relays nothing, or less than it should. Without names of machines: anybody may ask."""
    reasons = ["everything ends: the daemon was told to stop"] if source.board.is_draining else []
    if not source.sampler.sample(with_numbers=False).is_up:
        reasons.append("the database does not answer")
    workers = api.workers_by_lane(source)
    for lane in source.lanes:
        if not any(view.state is State.RUNNING for _, view in workers[lane.name]):
            reasons.append(f"no worker of {lane.name} runs")
    return reasons


def _with_headers(response: Response) -> Response:
    response.headers.update(_HEADERS)
    return response


def _tell_errors(app: Flask) -> None:
    said_s = [-SAID_EVERY_S]

    @app.errorhandler(Exception)
    def tell(error: Exception) -> Response:
        found = _as_refused(error)
        if found is None:
            if time.monotonic() >= said_s[0] + SAID_EVERY_S:
                said_s[0] = time.monotonic()
                log.error(log.ADMIN_FAILED, exception=error, path=request.path)
            found = Refused(500, "this failed in a way that was not foreseen", "see the log of outboxd, and report it")
        response = api.as_json({"error": redact(found.error), "todo": redact(found.todo)}, found.status)
        response.headers.update(found.headers)
        return response


def _as_refused(error: Exception) -> Refused | None:
    """What to say of an error, None for one that nobody expected."""
    match error:
        case Refused():
            return error
        case StoreUnavailable():
            todo = "ask again; outboxd itself goes on trying"
            return Refused(503, f"the database does not answer: {error}", todo, {"Retry-After": str(RETRY_AFTER_S)})
        case StoreConflict():
            return Refused(409, f"something holds a lock on the table: {error}", "ask again")
        case StoreRefused():
            todo = "run `outboxd init-db`" if "outboxd init-db" in str(error) else _RIGHTS
            return Refused(500, f"the database refuses: {error}", todo)
        case JobError():
            status = 404 if isinstance(error, NoSuchJob) else 409 if isinstance(error, TooMany) else 400
            return Refused(status, error.what, error.todo.replace("`outboxd jobs list`", "GET /api/job/list"))
        case ConfigError():
            return Refused(400, str(error).replace("--lane", "lane"), "name a lane of the configuration")
        case HTTPException(code=int(status)):
            headers = {name: value for name, value in error.get_headers() if name == "Allow"}
            return Refused(status, *_PLAIN.get(status, (error.name.lower(), "")), headers)
    return None


_RIGHTS = "see `Rights on MySQL` in docs/operations.md"
_PLAIN = {
    404: ("there is nothing here", "see `The admin API` in docs/operations.md for what there is"),
    405: ("this method is not for this path", "see the header Allow"),
    413: (f"the body is longer than {MOST_BODY_BYTES // 1024} KiB", "send less"),
}
