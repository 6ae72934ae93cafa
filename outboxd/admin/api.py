"""What can be read of lanes and events; what the routes share."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec
from flask import Response, request

from outboxd import __version__
from outboxd.admin import fields
from outboxd.admin.access import Refused
from outboxd.admin.source import Source
from outboxd.config.schema import Lane
from outboxd.explain import search
from outboxd.explain.lanes import lane_document, lane_named
from outboxd.vitals import BRIDGE, RESTARTS, TOTALS, SlotView, State


@dataclass(frozen=True, slots=True)
class Route:
    """One entry of the API. answer: called with what the rule finds in the path. changes: with GET, too."""

    method: str
    rule: str
    permission: str
    answer: Callable[..., Response]
    changes: bool = False

    @property
    def name(self) -> str:
        return f"{self.method} {self.rule}".replace(".", "_")


def routes(source: Source) -> list[Route]:
    return [
        Route("GET", "/api/lanes", "lanes:read", lambda: _lanes(source)),
        Route("GET", "/api/events/<event_id:event_id>", "events:read", lambda event_id: _event(source, event_id)),
    ]


def as_json(document: object, status: int = 200) -> Response:
    """A document, on one line."""
    return Response(msgspec.json.encode(document) + b"\n", status, mimetype="application/json")


def _event(source: Source, event_id: str) -> Response:
    given = fields.of_query(request.query_string.decode("latin-1"), ("lane", "app"))
    config, name = source.config, fields.text(given, "lane")
    lanes = list(config.lanes.values()) if name is None else [lane_named(config, name)]
    check_id(event_id)
    with source.desks.session(config.database) as connection:
        scenes = search.scenes_of(config, connection, lanes, event_id, fields.text(given, "app"))
    if not scenes:
        raise Refused(404, search.never_seen(config, event_id, lanes), search.reasons(lanes))
    return as_json(search.explained(event_id, lanes, scenes))


def check_id(event_id: str) -> None:
    """Can there be such an event? Raises Refused."""
    if not event_id.isascii():
        raise Refused(404, "there is no such event: an event_id is ASCII", "copy it from where it was written")


def _lanes(source: Source) -> Response:
    fields.of_query(request.query_string.decode("latin-1"), ())
    sample, now_s = source.sampler.sample(), time.monotonic()
    workers = workers_by_lane(source)
    return as_json({
        "node_id": source.config.node_id,
        "version": __version__,
        "draining": source.board.is_draining,
        "database_up": sample.is_up,
        "numbers_age_ms": round((now_s - sample.numbers_at_s) * 1000),
        "lanes": [
            {
                **lane_document(lane, sample.lanes.get(lane.name), sample.problems.get(lane.name, "")),
                "workers": [_worker(name, view, now_s) for name, view in workers[lane.name]],
                "breakers": _breakers(lane, workers[lane.name]),
            }
            for lane in source.lanes
        ],
        "bridge": [_worker(name, view, now_s) for name, view in workers[BRIDGE]],
    })  # fmt: skip


Worker = tuple[str, SlotView]


def workers_by_lane(source: Source) -> Mapping[str, list[Worker]]:
    """(name, slot) of each lane's workers, and of the bridge's, without those that were taken away by a reload."""
    found: dict[str, list[Worker]] = {name: [] for name in (*(lane.name for lane in source.lanes), BRIDGE)}
    board = source.board
    for index in range(len(board)):
        name, view = board.name(index), board.read(index)
        lane = name.rpartition("-")[0]  # what serves the workers has no number
        if lane in found and view.state not in (State.EMPTY, State.DONE):
            found[lane].append((name, view))
    return found


def _worker(name: str, view: SlotView, now_s: float) -> dict[str, object]:
    is_there = bool(view.pid)
    return {
        "worker": name,
        "pid": view.pid or None,
        "state": view.state.name.lower(),
        "age_ms": round((now_s - view.started_s) * 1000) if is_there else None,
        "heartbeat_age_ms": round((now_s - view.heartbeat_s) * 1000) if is_there else None,
        "in_flight": view.in_flight,
        "totals": dict(zip(TOTALS, view.totals, strict=True)),
        "restarts": dict(zip(RESTARTS, view.restarts, strict=True)),
    }


def _breakers(lane: Lane, workers: list[Worker]) -> dict[str, int]:
    """Publisher: how many workers have its breaker open."""
    return {name: sum(view.breakers >> i & 1 for _, view in workers) for i, name in enumerate(lane.publishers)}
