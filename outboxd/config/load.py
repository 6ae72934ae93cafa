"""From a YAML file to a `Config`, or every problem at once."""

import hashlib
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn

from outboxd import redact
from outboxd.config import document, schema
from outboxd.config.admin import read_admin
from outboxd.config.durations import format_duration
from outboxd.config.files import open_regular, read_regular, secret_file
from outboxd.config.jobs import read_jobs
from outboxd.config.keys import LOG, SUPERVISOR, Key, duration, read_text, section
from outboxd.config.lanes import read_lanes
from outboxd.config.publishers import read_publishers
from outboxd.config.queue_keys import read_redis
from outboxd.config.queues import read_bridge, read_rocketmq
from outboxd.config.report import Bad, Place, Report
from outboxd.config.urls import parse_database, secrets_of
from outboxd.errors import ConfigError
from outboxd.event import NAME_PATTERN

_NODE_ID_CHARACTERS = 40
_NODE_ID_HASH_CHARACTERS = 4
_NOT_IN_A_NODE_ID = re.compile(r"[^!-.0-~]")


def load(path: str, environ: Mapping[str, str]) -> schema.Config:
    """Read a file, and the files of secrets it names; the secrets become known to `redact`.

    Raises ConfigError with every problem, one line each; no line shows a secret.
    """
    report = Report(path or "the configuration file")
    try:
        text = read_regular(path, 4 * document.MAX_CHARACTERS).decode("utf-8")
    except Bad as bad:
        Place(report).problem(str(bad))
    except UnicodeDecodeError as error:
        Place(report).problem(f"is not UTF-8 (byte {error.start + 1}), save it as UTF-8")
    else:
        return parse(text, environ, path)
    _refuse(report)


def parse(text: str, environ: Mapping[str, str], where: str) -> schema.Config:
    """The same for text; `where` names it in what concerns it as a whole."""
    report = Report(where)
    root = Place(report)
    value: object = None
    try:
        value = document.read(text, environ, report)
    except document.Malformed as malformed:
        root.problem(str(malformed))
    if report.problems and value is None:
        _refuse(report)
    config = _read(value, root, environ)
    redact.register(report.secrets)
    if report.problems:
        _refuse(report)
    return config


def _refuse(report: Report) -> NoReturn:
    raise ConfigError(report.lines(report.problems)) from None


def _read(value: object, root: Place, environ: Mapping[str, str]) -> schema.Config:
    top = section(value, root, TOP, None).values
    database = _database(top.get("database"), root.child("database"))
    supervisor = _supervisor(top.get("supervisor"), root.child("supervisor"))
    admin = read_admin(top.get("admin"), root.child("admin"), environ)
    redis = read_redis(top.get("redis"), root.child("redis"))
    mq = read_rocketmq(top.get("rocketmq"), root.child("rocketmq"))
    bridge = read_bridge(top.get("bridge"), root.child("bridge"), mq, redis)
    publishers = read_publishers(top.get("publishers"), root.child("publishers"), redis, mq.publishers)
    # A publisher that has problems of its own is known all the same.
    named = top.get("publishers")
    kinds = (
        {name: item.get("type") for name, item in named.items() if isinstance(item, dict)}
        if isinstance(named, dict)
        else {}
    )
    kinds = {name: kind for name, kind in kinds.items() if re.fullmatch(NAME_PATTERN, name)}
    kinds |= {publisher.name: publisher.type for publisher in mq.publishers}
    lanes = read_lanes(top.get("outbox_worker"), top.get("lanes"), root, kinds)
    longest_s = max((lane.publish_timeout_s for lane in lanes.values()), default=bridge.publish_timeout_s)
    bridge = replace(bridge, publish_timeout_s=longest_s)
    _check_bridge(bridge, kinds, root)
    _check_urls(lanes, publishers, root)
    jobs = read_jobs(top.get("jobs"), root.child("jobs"))
    log = schema.Log(**section(top.get("log"), root.child("log"), LOG, schema.Log()).values)
    node_id = _node_id(top.get("node_id"), root.child("node_id"))
    report = root.report
    return schema.Config(
        node_id=node_id,
        metrics_dir=top.get("metrics_dir"),
        database=database,
        supervisor=supervisor,
        admin=admin,
        redis=redis,
        bridge=bridge,
        lanes=lanes,
        publishers=publishers,
        jobs=jobs,
        log=log,
        warnings=tuple(report.lines(report.warnings)),
        secrets=tuple(dict.fromkeys(report.secrets)),
    )


def _check_bridge(bridge: schema.Bridge, kinds: Mapping[str, object], root: Place) -> None:
    """It hands what it reads to a publisher of type tencent_im."""
    if bridge.enabled and kinds.get(bridge.publisher) != "tencent_im":
        at = root.child("bridge").child("publisher")
        at.problem(f"{at.show(bridge.publisher)} is no publisher of type tencent_im, define one under publishers")


def _check_urls(
    lanes: Mapping[str, schema.Lane], publishers: Mapping[str, schema.PublisherSettings], root: Place
) -> None:
    """A publisher over Redis that a lane uses needs a server."""
    used = {name for lane in lanes.values() if lane.enabled for name in lane.publishers}
    for name, settings in publishers.items():
        over_redis = isinstance(settings, schema.RedisStreams) or (
            isinstance(settings, schema.RocketLaunch) and settings.carrier == "redis"
        )
        if over_redis and getattr(settings, "url", None) is None and name in used:
            root.child("publishers").child(name).problem("has no url, and there is no redis.url: give one of them")


def _database(value: object, place: Place) -> schema.Database:
    read = section(value, place, DATABASE, schema.Database())
    parsed: dict[str, Any] = read.values.pop("url", {})
    password = read.values.pop("password_file", None)
    if password is not None:
        if parsed.get("password") is not None:
            place.child("password_file").problem("the url has a password already, keep one of the two")
        elif parsed.get("scheme", "sqlite") == "sqlite" and "url" not in read.bad:
            place.child("password_file").problem("a SQLite file has no password, remove it or give a mysql:// url")
        parsed["password"] = password
    return schema.Database(**parsed, **read.values)


def _read_database_url(value: object, place: Place) -> dict[str, Any]:
    text = read_text(value, place)
    place.report.secrets.extend(secrets_of(text))
    parsed = parse_database(text)
    if parsed.get("password"):
        place.report.secrets.append(parsed["password"])
    for key in ("ssl_ca", "ssl_cert", "ssl_key"):
        if key in parsed:
            try:
                open_regular(parsed[key]).close()
            except Bad as bad:
                raise Bad(f"{key}: {bad}") from None
    return {"url": text, **parsed}


def _supervisor(value: object, place: Place) -> schema.Supervisor:
    given = section(value, place, SUPERVISOR, schema.Supervisor())
    settings = schema.Supervisor(**given.values)
    if settings.restart_backoff_max_s >= settings.restart_backoff_s or given.bad:
        return settings
    place.child("restart_backoff_max").warn(
        f"{format_duration(settings.restart_backoff_max_s)} is below restart_backoff, "
        f"raising it to {format_duration(settings.restart_backoff_s)}"
    )
    return schema.Supervisor(**given.values | {"restart_backoff_max_s": settings.restart_backoff_s})


def _node_id(value: str | None, place: Place) -> str:
    node_id = value
    if node_id is None:
        node_id = _NOT_IN_A_NODE_ID.sub("-", socket.gethostname()) or "localhost"
    if len(node_id) <= _NODE_ID_CHARACTERS:
        return node_id
    digest = hashlib.sha256(node_id.encode("ascii")).hexdigest()[:_NODE_ID_HASH_CHARACTERS]
    short = node_id[:_NODE_ID_CHARACTERS] + digest
    source = "the host's name" if value is None else "the name"
    place.warn(f"{source} has more than {_NODE_ID_CHARACTERS} characters, using {short}")
    return short


def _read_node_id(value: object, place: Place) -> str:
    text = read_text(value, place)
    if _NOT_IN_A_NODE_ID.search(text):
        raise Bad("may hold visible ASCII without spaces and slashes only, e.g. relay-1")
    return text


def _as_is(value: object, place: Place) -> object:
    return value


SECTIONS = (
    "database", "redis", "supervisor", "admin", "outbox_worker", "lanes", "publishers", "rocketmq", "bridge", "jobs",
    "log",
)  # fmt: skip
TOP: Mapping[str, Key] = {
    "node_id": Key(_read_node_id, nullable=True),
    "metrics_dir": Key(lambda value, place: os.path.abspath(read_text(value, place)), nullable=True),
    **{name: Key(_as_is) for name in SECTIONS},
}
DATABASE: Mapping[str, Key] = {
    "url": Key(_read_database_url),
    "password_file": secret_file(),
    "connect_timeout": duration("100ms", "5m"),
    "statement_timeout": duration("1s", "10m"),
}
