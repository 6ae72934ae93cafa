"""Dead letters over HTTP: as `outboxd dead` lists, shows, replays, purges, skips and kills them.

A request changes MOST_CHANGED at the most and says how many are left, so that none lasts long.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from flask import Response, g, request

from outboxd import log
from outboxd.admin import fields
from outboxd.admin.access import Refused
from outboxd.admin.api import Route, as_json, check_id
from outboxd.admin.fields import FILTERS, Given
from outboxd.admin.source import Source
from outboxd.config.schema import Lane
from outboxd.errors import StoreConflict, StoreUnavailable
from outboxd.explain import dead, search
from outboxd.explain.dead import BATCH, PURGE, REPLAY, SKIP, USUAL_LIMIT, Deed, Matches
from outboxd.explain.lanes import lane_named
from outboxd.explain.search import publishers_of, scene_of
from outboxd.store import desk, desk_dead
from outboxd.store.connection import Connection
from outboxd.store.desk_look import envelope_of

MOST_LISTED = 1000
LOOKED_AT = 20_000
"""Dead letters that are looked at for one page, and for the count."""
MOST_CHANGED = 10_000
MOST_PAYLOAD_BYTES = 16 * 1024 * 1024
"""Of one answer; the first payload is shown whatever its size."""

_ABOVE_ALL = 2**63 - 1

Do = Callable[[Connection, Lane, desk_dead.DeadFilter], Iterator[int]]


def routes(source: Source) -> list[Route]:
    return [
        Route("GET", "/api/dead", "dead:read", lambda: _list(source)),
        Route("GET", "/api/dead/<event_id:event_id>", "dead:read", lambda event_id: _show(source, event_id)),
        Route("POST", "/api/dead/replay", "dead:replay", lambda: _replay(source)),
        Route("POST", "/api/dead/purge", "dead:purge", lambda: _purge(source)),
        Route("POST", "/api/dead/skip", "dead:skip", lambda: _skip(source)),
        Route("POST", "/api/dead/kill", "dead:kill", lambda: _kill(source)),
    ]


def _query(*names: str) -> Given:
    return fields.of_query(request.query_string.decode("latin-1"), names)


def _body(*names: str) -> Given:
    return fields.of_body(request.get_data(), request.headers.get("Content-Type", ""), names)


def _list(source: Source) -> Response:
    given = _query(*FILTERS, "before_id")
    wanted = fields.wanted(given, most=MOST_LISTED)
    before_id = fields.whole(given, "before_id", _ABOVE_ALL, 0)
    lane, limit = lane_named(source.config, wanted.lane), wanted.limit or USUAL_LIMIT
    with source.desks.session(source.config.database) as connection:
        chosen = replace(wanted.filter(connection, lane), limit=None)
        page, next_id = desk_dead.dead_page(connection, lane, chosen, limit, before_id, LOOKED_AT)
        count, is_more = None, False
        if before_id is None:
            count, is_more = dead.total(connection, lane, chosen, page, LOOKED_AT)
    return as_json({**dead.listed(lane, page, count, is_more), "next_before_id": next_id})


def _show(source: Source, event_id: str) -> Response:
    given = _query("lane", "app")
    lane = lane_named(source.config, fields.text(given, "lane"))
    check_id(event_id)
    with source.desks.session(source.config.database) as connection:
        chosen = desk_dead.DeadFilter(event_id=event_id, app=fields.text(given, "app"))
        found = desk_dead.dead_list(connection, lane, chosen, USUAL_LIMIT)
        if not found:
            raise _none(connection, lane, Matches(chosen, 0, False, []))
        scenes = [scene_of(source.config, connection, lane, event) for event in found]
        left_bytes, payloads = MOST_PAYLOAD_BYTES, list[bytes | None]()
        for event in found:
            fits = not payloads or event.envelope_bytes <= left_bytes
            left_bytes -= event.envelope_bytes if fits else 0
            payloads.append(envelope_of(connection, lane, event.id) or b"" if fits else None)
    return as_json(dead.shown(lane, scenes, payloads))


def _none(connection: Connection, lane: Lane, found: Matches) -> Refused:
    """There is no such dead letter, and where the event is instead."""
    return Refused(404, dead.nothing(connection, lane, found), "GET /api/events/ID finds events in any state")


def _replay(source: Source) -> Response:
    given = _body(*FILTERS, "event_id", "dry_run", "all", "to")
    to = fields.text(given, "to")
    if to not in (None, "all"):
        raise fields.bad('to is not "all"', 'leave it out, or write "all": also publishers that accepted it before')
    return _change(source, given, REPLAY, partial(desk_dead.replay, to_all=to == "all", batch=BATCH))


def _purge(source: Source) -> Response:
    given = _body(*FILTERS, "event_id", "dry_run", "all")
    return _change(source, given, PURGE, partial(desk_dead.purge, batch=BATCH))


def _skip(source: Source) -> Response:
    given = _body(*FILTERS, "event_id", "dry_run", "all")
    try:
        dead.check_blocks(lane_named(source.config, fields.text(given, "lane")))
    except dead.NothingWaits as error:
        says, _, todo = str(error).partition(". ")
        raise Refused(409, says, todo) from None
    return _change(source, given, SKIP, partial(desk_dead.skip, batch=BATCH))


def _change(source: Source, given: Given, deed: Deed, do: Do) -> Response:
    wanted = fields.wanted(given, fields.text(given, "event_id"))
    check_id(wanted.event_id or "")
    lane = lane_named(source.config, wanted.lane)
    is_dry, is_all = fields.flag(given, "dry_run"), fields.flag(given, "all")
    with source.desks.session(source.config.database) as connection:
        found = dead.look(connection, lane, wanted, deed)
        again = dead.skipped_before(connection, lane, found)
        if not (found.count or again) and wanted.event_id is not None:
            raise _none(connection, lane, found)
        if found.count > 1 and wanted.is_all and not (is_all or is_dry):
            raise fields.bad(f"no filter is given, and {found} match", 'give one, or "all": true to mean all of them')
        asked = publishers_of(source.config, lane) if deed is REPLAY else None
        says = dead.notes(found, asked, given.get("to") == "all") if found.count else []
        done = 0
        if again:
            says.append(again)
        elif is_dry:
            says.append(dead.would(deed, found, lane))
        elif not found.count:
            says.append(dead.nothing(connection, lane, found))
        else:
            most = min(MOST_CHANGED, found.chosen.limit or MOST_CHANGED)
            done = _work_through(do(connection, lane, replace(found.chosen, limit=most)), deed, lane)
            says.append(dead.did(deed, done, lane))
    left = max(0, found.count - done)
    says = [text.replace("--app", "app") for text in says]
    return as_json({**dead.changed(lane, found, done), "left": left, "dry_run": is_dry, "says": says})


def _work_through(chunks: Iterator[int], deed: Deed, lane: Lane) -> int:
    """How many were changed. Cut short, it says how far it came."""
    done = 0
    try:
        for count in chunks:
            done += count
    except (StoreUnavailable, StoreConflict) as error:
        raise type(error)(f"{error}; before that: {dead.did(deed, done, lane)}") from error
    finally:
        if done:
            log.info(log.ADMIN_CHANGED, by=g.who, what=dead.did(deed, done, lane))
    return done


def _kill(source: Source) -> Response:
    given = _body("lane", "event_id", "app", "dry_run")
    lane, event_id = lane_named(source.config, fields.text(given, "lane")), fields.text(given, "event_id")
    if event_id is None:
        raise fields.bad("no event is named", 'write {"event_id": "..."}')
    check_id(event_id)
    with source.desks.session(source.config.database) as connection:
        try:
            event = dead.the_one(connection, lane, event_id, fields.text(given, "app"))
        except dead.NoSuchEvent as error:
            raise Refused(404, str(error), search.reasons([lane])) from None
        except dead.Ambiguous as error:
            raise fields.bad(str(error).replace("--app", "app"), "add app") from None
        if fields.flag(given, "dry_run"):
            result, says = desk.Killed(False, event.status), dead.would_kill(lane, event)
        else:
            result = desk.kill(connection, lane, event, f"{g.who}@{source.config.node_id}")
            says = dead.killed(lane, event, result)
            if not result.done:
                raise Refused(409, says, "only what is not published yet can be killed")
            log.info(log.ADMIN_CHANGED, by=g.who, what=says)
    return as_json({**dead.killed_document(lane, event, result), "says": [says]})
