"""The keys of publishers that speak to queues and services of their own kind, and the sections redis and rocketmq."""

import re
from collections.abc import Mapping
from typing import Any

from outboxd.config import schema
from outboxd.config.document import UNUSABLE
from outboxd.config.files import existing_file, secret_file
from outboxd.config.keys import (
    Key,
    boolean,
    duration,
    entries,
    items,
    kind_of,
    matching,
    one_of,
    read_text,
    section,
    whole,
)
from outboxd.config.report import Bad, Place
from outboxd.config.urls import check_http, check_redis, secrets_of, with_password

_ENDPOINTS = re.compile(r"[A-Za-z0-9_.\[\]:-]+:[0-9]{1,5}(;[A-Za-z0-9_.\[\]:-]+:[0-9]{1,5})*")
_SERVERS = re.compile(r"[A-Za-z0-9_.\[\]:-]+:[0-9]{1,5}(,[A-Za-z0-9_.\[\]:-]+:[0-9]{1,5})*")
_TARGET = re.compile(r"(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}|unix:[!-~]+|dns:[!-~]+")
TOPIC = re.compile(r"[A-Za-z0-9_%-]{1,127}")
_KAFKA_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_OPTION = re.compile(r"[a-z][a-z0-9.]{1,100}")
_SECRET_OPTION = re.compile(r"password|secret|key\.pem|token", re.IGNORECASE)
REDIS_KEY = re.compile(r"[!-~]{1,255}")
_GROUP_ID = re.compile(r"(?!@TGS#)[ -~]{1,200}")
_MOST_APPS = 10_000


def read_redis_url(value: object, place: Place) -> str:
    """redis://, rediss:// or unix://. Its password is a secret."""
    text = read_text(value, place)
    place.report.secrets.extend(secrets_of(text))
    check_redis(text)
    return text


def read_redis(value: object, place: Place) -> schema.Redis:
    """The section `redis`."""
    read = section(value, place, REDIS, schema.Redis()).values
    password = read.pop("password_file", None)
    if password is not None and "url" not in read:
        place.child("password_file").problem("there is no redis.url that it could be for, give both")
    elif password is not None:
        try:
            read["url"] = with_password(read["url"], password)
        except Bad as bad:
            place.child("password_file").problem(str(bad))
    return schema.Redis(**read)


def read_options(value: object, place: Place) -> dict[str, str]:
    """librdkafka's options: text, numbers and booleans, as its own names have them."""
    if value is not None and not isinstance(value, dict):
        raise Bad(f"expected a mapping (name: value), got {kind_of(value)}")
    options: dict[str, str] = {}
    for name, item in entries(value, place):
        at = place.child(name)
        if _OPTION.fullmatch(name) is None:
            at.problem("is no option's name: lower-case letters, digits and dots")
        elif name in OPTIONS_OF_OURS:
            at.problem("outboxd sets that option itself, remove it")
        elif isinstance(item, bool):
            options[name] = str(item).lower()
        elif isinstance(item, str | int | float):
            options[name] = str(item)
            if _SECRET_OPTION.search(name):
                place.report.secrets.append(options[name])
        elif item is not UNUSABLE:
            at.problem(f"expected text, a number or true or false, got {kind_of(item)}")
    return options


def read_apps(value: object, place: Place) -> dict[str, schema.TencentApp]:
    """Tenants by app_code; "" is the tenant of events without one."""
    if not isinstance(value, dict) or not value:
        raise Bad(f"expected a mapping (app_code: its settings), got {kind_of(value)}")
    if len(value) > _MOST_APPS:
        raise Bad(f"has {len(value)} tenants, the most is {_MOST_APPS}")
    apps: dict[str, schema.TencentApp] = {}
    for code, item in value.items():
        at = place.child(str(code))
        if not isinstance(code, str) or len(code) > 32:
            at.problem("an app_code is text of at most 32 characters, put it in quotes")
            continue
        read = section(item, at, APP, None)
        settings = dict(read.values)
        one_secret(settings, "secret_key", at)
        missing = [name for name in ("sdk_app_id", "identifier", "secret_key") if name not in settings]
        for name in missing:
            if name not in read.bad:
                at.problem(f"has no {name}")
        if not missing:
            apps[code] = schema.TencentApp(**settings)
    return apps


def one_secret(settings: dict[str, Any], name: str, place: Place) -> None:
    """A secret is given as it is, or in a file; not both."""
    if (from_file := settings.pop(f"{name}_file", None)) is not None:
        if settings.get(name):
            place.child(f"{name}_file").problem(f"{name} is given too, keep one of the two")
        settings[name] = from_file


def _read_secret_text(value: object, place: Place) -> str:
    text = read_text(value, place)
    place.report.secrets.append(text)
    return text


def finish_tencent(settings: dict[str, Any], place: Place) -> None:
    """Region, or the base URL that takes its place, become the hosts."""
    region = settings.pop("region", "china")
    base_url = settings.pop("base_url", None)
    backup = settings.pop("backup", True)
    if base_url is not None:
        settings["hosts"] = (base_url.rstrip("/"),)
    else:
        main, second = (f"https://{host}" for host in schema.REGIONS[region])
        settings["hosts"] = (main, second) if backup else (main,)
    template = settings.get("group_id", "{room_id}")
    if "{room_id}" not in template:
        place.child("group_id").problem("names no {room_id}, so that all rooms would be one group")


def _read_base_url(value: object, place: Place) -> str:
    text = read_text(value, place)
    check_http(text)
    return text


REDIS: Mapping[str, Key] = {
    "url": Key(read_redis_url, nullable=True),
    "password_file": secret_file(),
}
STREAMS: Mapping[str, Key] = {
    "url": Key(read_redis_url, nullable=True),
    "stream": Key(matching(REDIS_KEY, "no name of a stream: visible ASCII, at most 255 characters")),
    "max_length": whole(0, 10**12),
}
OPTIONS_OF_OURS = frozenset(
    {"bootstrap.servers", "enable.idempotence", "acks", "message.timeout.ms", "delivery.timeout.ms"}
)
KAFKA: Mapping[str, Key] = {
    "bootstrap_servers": Key(matching(_SERVERS, "no list of servers, write e.g. kafka-1:9092,kafka-2:9092")),
    "topic": Key(matching(_KAFKA_TOPIC, "no name of a topic: letters, digits, '.', '_' and '-'")),
    "options": Key(read_options),
}
GRPC: Mapping[str, Key] = {
    "target": Key(matching(_TARGET, "no address, write e.g. activity.internal:9090")),
    "tls": boolean(),
    "ca_file": existing_file(),
}
LAUNCH: Mapping[str, Key] = {
    "url": Key(read_redis_url, nullable=True),
    "key": Key(matching(REDIS_KEY, "no name of a key: visible ASCII, at most 255 characters")),
}
APP: Mapping[str, Key] = {
    "sdk_app_id": whole(1, 2**63 - 1),
    "identifier": Key(read_text),
    "secret_key": Key(_read_secret_text),
    "secret_key_file": secret_file(),
}
TENCENT: Mapping[str, Key] = {
    "region": Key(one_of(schema.REGIONS)),
    "base_url": Key(_read_base_url, nullable=True),
    "backup": boolean(),
    "group_type": Key(one_of(schema.GROUP_TYPES)),
    "group_id": Key(matching(_GROUP_ID, "no id of a group: printable ASCII that does not begin with @TGS#")),
    "group_owner": Key(read_text, nullable=True),
    "apps": Key(read_apps),
    "silent_events": Key(lambda value, place: items(value, place, read_text)),
    "connections": whole(1, 1000),
}
ROCKETMQ: Mapping[str, Key] = {
    "enabled": boolean(),
    "endpoints": Key(matching(_ENDPOINTS, "no address, write e.g. proxy-1:8081;proxy-2:8081")),
    "access_key": Key(_read_secret_text, nullable=True),
    "access_key_file": secret_file(),
    "secret_key": Key(_read_secret_text, nullable=True),
    "secret_key_file": secret_file(),
    "namespace": Key(read_text, nullable=True),
    "tls": boolean(),
    "send_timeout": duration("100ms", "10m"),
    "retry": whole(0, 16),
}
