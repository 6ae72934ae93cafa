"""How single values are read: durations, sizes, types, names. Each bad one gives exactly one line."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outboxd.config.durations import format_duration, format_size, parse_duration_s, parse_size_bytes
from outboxd.config.load import parse
from outboxd.config.schema import Config
from outboxd.errors import ConfigError

USABLE = "publishers: {console: {type: console}, hook: {type: http, url: 'http://h/', %s}}\n"
WORKER = USABLE % "" + "outbox_worker: {direct: [console], %s}\n"
NOT_A_HEADER_VALUE = (
    "is not visible ASCII of at most 4096 characters without spaces at its ends, percent-encode the rest"
)
TYPES = "console, http, null, redis_streams, kafka, rocket_launch, activity_grpc, tencent_im, python"
NOT_A_NAME = "a name is a-z, 0-9 and _, begins with a letter and has at most 24 characters, e.g. my_hook"


def problems(text: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text, environ, "outbox.yaml")
    return list(caught.value.problems)


def config(text: str, **environ: str) -> Config:
    return parse(text, environ, "outbox.yaml")


@pytest.mark.parametrize(
    ("text", "duration_s"),
    [
        ("3s", 3),
        ("500ms", 0.5),
        ("5m", 300),
        ("1h30m", 5400),
        ("1.5s", 1.5),
        ("0s", 0),
        ("-2s", -2),
        ("1m1s1ms", 61.001),
    ],
)
def test_a_duration_is_read_in_seconds(text: str, duration_s: float) -> None:
    assert parse_duration_s(text) == duration_s


@pytest.mark.parametrize(
    "text", ["", "-", "3", "s", "3 s", "3S", "3sec", "5min", "1d", "30m1h", "3s3s", "٣s", "1e3s", "3s ", "1" * 99 + "s"]
)
def test_what_is_no_duration_is_not_read(text: str) -> None:
    assert parse_duration_s(text) is None


@given(st.integers(min_value=-(10**12), max_value=10**12))
def test_a_duration_is_read_back_as_it_is_written(duration_ms: int) -> None:
    """Messages and warnings show durations; what they show must be what is used, and usable in the file."""
    assert parse_duration_s(format_duration(duration_ms / 1000)) == duration_ms / 1000


@pytest.mark.parametrize(("text", "size_bytes"), [("512KiB", 524288), ("16MiB", 16777216), ("1GiB", 1073741824)])
def test_a_size_is_read_in_bytes_and_written_back(text: str, size_bytes: int) -> None:
    assert parse_size_bytes(text) == size_bytes
    assert format_size(size_bytes) == text


@pytest.mark.parametrize("text", ["", "16", "16MB", "16M", "16 MiB", "-1MiB", "1.5MiB"])
def test_what_is_no_size_is_not_read(text: str) -> None:
    assert parse_size_bytes(text) is None


@pytest.mark.parametrize(
    ("setting", "attribute", "value"),
    [
        ("batch_size: 0", "batch_size", 100),
        ("batch_size: 1_000", "batch_size", 1000),
        ("poll_interval: 0", "poll_interval_s", 1.0),
        ("poll_interval: 250ms", "poll_interval_s", 0.25),
        ("max_event_bytes: 100", "max_event_bytes", 100),
        ("max_event_bytes: 2KiB", "max_event_bytes", 2048),
        ("retry_strategy: ''", "retry_strategy", "exponential_backoff"),
        ("retry_strategy: null", "retry_strategy", "exponential_backoff"),
        ("retry_strategy: fixed_interval", "retry_strategy", "fixed_interval"),
        ("enabled: off", "enabled", False),
        ("columns: {envelope: payload}", "columns", {"envelope": "payload"}),
        ("columns: {event_id: room_id, room_id: event_id}", "columns", {"event_id": "room_id", "room_id": "event_id"}),
        ("columns: null", "columns", {}),
    ],
)
def test_a_setting_of_a_lane_is_read(setting: str, attribute: str, value: Any) -> None:
    assert getattr(config(WORKER % setting).lanes["room_outbox"], attribute) == value


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("batch_sise: 5", "batch_sise: unknown key, did you mean batch_size?"),
        ("sharding: room", "sharding: unknown key, see docs/configuration.md for the names known here"),
        ("batch_size: 10001", "batch_size: 10001 is too large, the most is 10000"),
        ("batch_size: '5'", "batch_size: expected a whole number, got text, remove the quotes and leading zeros"),
        ("batch_size: 0x", "batch_size: expected a whole number, got text"),
        ("batch_size: 1.5", "batch_size: expected a whole number, got a decimal number"),
        ("batch_size: true", "batch_size: expected a whole number, got true or false"),
        ("batch_size: null", "batch_size: expected a whole number, got nothing"),
        ("batch_size: [1]", "batch_size: expected a whole number, got a list"),
        (f"batch_size: {'9' * 200}", f"batch_size: {'9' * 200} is too large, the most is 10000"),
        ("concurrency: 513", "concurrency: 513 is too large, the most is 512"),
        ("enabled: 'yes'", "enabled: expected true or false, got text, remove the quotes"),
        ("enabled: 1", "enabled: expected true or false, got a number"),
        ("enabled: maybe", "enabled: expected true or false, got text"),
        ("poll_interval: 5", "poll_interval: 5 has no unit, write e.g. 5s or 5ms"),
        ("poll_interval: 5sec", "poll_interval: '5sec' is no duration, write e.g. 500ms, 3s, 5m or 1h30m"),
        ("poll_interval: 2h", "poll_interval: 2h is too large, the most is 1h"),
        ("poll_interval: {}", "poll_interval: expected a duration, got a mapping, write e.g. 3s"),
        ("lease: 0", "lease: 0s is too small, the least is 1s"),
        ("lease: 10s", "lease: 10s is too short for publish_timeout 3s, give at least 11s (3 x publish_timeout + 2s)"),
        ("max_event_bytes: 8MB", "max_event_bytes: '8MB' is no size, write e.g. 512KiB, 16MiB or a number of bytes"),
        ("max_event_bytes: 0", "max_event_bytes: 0 is too small, the least is 1"),
        ("max_event_bytes: 2GiB", "max_event_bytes: 2GiB is too large, the most is 1GiB"),
        (
            "retry_strategy: exponential",
            "retry_strategy: unknown name 'exponential', did you mean exponential_backoff?",
        ),
        ("publish_mode: MQ", "publish_mode: unknown name 'MQ', did you mean mq?"),
        ("columns: {envelop: x}", "columns.envelop: unknown column, did you mean envelope?"),
        ("columns: {id: 'a`b'}", "columns.id: is no column's name: letters, digits and _, at most 64 of them"),
        ("columns: {id: room_id}", "columns: id and room_id would be the same column, give each its own"),
        ("columns: [a]", "columns: expected a mapping (our column: the table's column), got a list"),
    ],
)
def test_a_bad_setting_of_the_lanes_is_one_line(setting: str, problem: str) -> None:
    assert problems(WORKER % setting) == [f"outbox_worker.{problem}"]


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("connections: 0", "connections: 0 is too small, the least is 1"),
        ("connections: 1001", "connections: 1001 is too large, the most is 1000"),
        ("format: cloud_events", "format: unknown name 'cloud_events', did you mean cloudevents?"),
        ("source: 'a b'", "source: 'a b' is no URI reference, write e.g. /outboxd/{lane}"),
        ("source: 'x{room}'", "source: 'x{room}' is no URI reference, write e.g. /outboxd/{lane}"),
        ("headers: [a]", "headers: expected a mapping (Name: value), got a list"),
        ("headers: {X-A: 5}", "headers.X-A: expected text, got a number, put it in quotes"),
        ("headers: {X-A: null}", "headers.X-A: has no value, give one or remove the key"),
        ('headers: {X-A: "a\\r\\nb: c"}', "headers.X-A: holds a line break or another control character, remove it"),
        ("headers: {X-A: 'é'}", f"headers.X-A: {NOT_A_HEADER_VALUE}"),
        ("headers: {'X A: b': c}", "headers: the name of header 1 holds characters that no header may have, mend it"),
        ("headers: {X-A: a, x-a: b}", "headers.x-a: given twice, in other letter cases, keep one"),
        *((f"headers: {{{name}: a}}", f"headers.{name}: outboxd sets or controls that header itself, remove it")
          for name in ("ce-id", "CE-Anything", "Content-Type", "content-length", "Host", "webhook-id", "traceparent",
                       "tracestate", "baggage", "Transfer-Encoding", "Connection", "Expect")),
        ("forward_headers: X-A", "forward_headers: expected a list, got text, write [one, two]"),
        ("forward_headers: [Host]", "forward_headers[0]: outboxd sets or controls that header itself, remove it"),
        ("forward_headers: ['a b']", "forward_headers[0]: holds characters that no header's name may have, mend it"),
        ("headers: {X-A: a}, forward_headers: [x-a]",
         "forward_headers[0]: this publisher sets that header itself, remove one"),
        ("permanent_statuses: [399]", "permanent_statuses[0]: 399 is no status of a failure, give one of 400 to 599"),
        ("permanent_statuses: [400, 503]",
         "permanent_statuses[1]: 503 tells of an outage, which must not make dead letters, remove it"),
        ("events: []", 'events: matches no event at all, begin with "*"'),
        ("events: ['!Room*']", 'events: matches no event at all, begin with "*"'),
        ("events: ['*', '!']", "events[1]: is no pattern of an event type, write e.g. Room* or !RoomHeatChanged"),
        ("events: '*'", "events: expected a list, got text, write [one, two]"),
        ("max_rate: -1", "max_rate: -1.0 is too small, the least is 0"),
        ("max_rate: .inf", "max_rate: expected a number, got text"),
        ("breaker: {distinct_events: 1}", "breaker.distinct_events: 1 is too small, the least is 2"),
        ("breaker: {distinct: 5}", "breaker.distinct: unknown key, did you mean distinct_events?"),
        ("breaker: {initial_probe: 1m}", "breaker.max_probe: is below initial_probe, raise it"),
        ("breaker: false", "breaker: expected a mapping (key: value), got true or false"),
        ("client_key_file: /dev/null", "client_key_file: file '/dev/null': is no regular file, name one"),
        ("ca_file: /", "ca_file: file '/': is a directory, name a file in it"),
        ("conections: 5", "conections: unknown key, did you mean connections?"),
    ],
)  # fmt: skip
def test_a_bad_setting_of_an_http_publisher_is_one_line(setting: str, problem: str) -> None:
    text = USABLE % setting + "outbox_worker: {direct: [console]}"
    assert problems(text) == [f"publishers.hook.{problem}"]


@pytest.mark.parametrize(
    ("publisher", "problem"),
    [
        ("x: {type: null}", 'x.type: null without quotes means nothing at all in YAML, write type: "null"'),
        ("x: {}", f"x: has no type, give one of {TYPES}"),
        ("x: null", "x: expected a mapping with a type, got nothing, write e.g. {type: console}"),
        ("x: {type: consol}", "x.type: unknown type 'consol', did you mean console?"),
        ("x: {type: nats}", "x.type: unknown type 'nats', see docs/configuration.md for the names known here"),
        ("x: {type: 5}", f"x.type: expected text, got a number, give one of {TYPES}"),
        ("x: {type: http}", "x: has no url, which type http needs"),
        ("x: {type: python}", "x: has no target, which type python needs"),
        ("x: {type: python, target: a.b}", "x.target: 'a.b' is not of the form \"package.module:name\""),
        ("x: {type: python, target: 'a:b', threads: 257}", "x.threads: 257 is too large, the most is 256"),
        ("x: {type: console, url: 'http://h'}", "x.url: unknown key, known here: events, max_rate, breaker"),
        ("X: {type: console}", f"X: {NOT_A_NAME}"),
    ],
)  # fmt: skip
def test_a_bad_publisher_is_one_line(publisher: str, problem: str) -> None:
    text = f"publishers: {{console: {{type: console}}, {publisher}}}\noutbox_worker: {{direct: [console]}}"
    assert problems(text) == [f"publishers.{problem}"]


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ("databse: {}", "databse: unknown key, did you mean database?"),
        ("database: []", "database: expected a mapping (key: value), got a list"),
        ("database: {statement_timeout: 10ms}", "database.statement_timeout: 10ms is too small, the least is 1s"),
        ("log: {level: INFO}", "log.level: unknown name 'INFO', did you mean info?"),
        ("log: {format: xml}", "log.format: unknown name 'xml', known here: json, console"),
        ("supervisor: {stable_after: -1s}", "supervisor.stable_after: -1s is too small, the least is 0s"),
        ("node_id: a/b", "node_id: may hold visible ASCII without spaces and slashes only, e.g. relay-1"),
        ("node_id: é", "node_id: may hold visible ASCII without spaces and slashes only, e.g. relay-1"),
        ("node_id: 7", "node_id: expected text, got a number, put it in quotes"),
        ("database: {password_file: x}",
         "database.password_file: file 'x': no such file, check the path"),
        ("database: {url: }", "database.url: has no value, give one or remove the key"),
    ],
)  # fmt: skip
def test_a_bad_setting_elsewhere_is_one_line(section: str, problem: str) -> None:
    assert problems(WORKER % "" + section) == [problem]


def test_a_very_long_value_gives_a_line_of_bounded_length() -> None:
    """A message is for a person; a slipped file's content in it would hide what is wrong."""
    long = "x" * 100_000
    lines = problems(WORKER % f"retry_strategy: {long}, {long}: 1, direct: {long}")
    assert lines
    assert all(len(line) <= 300 for line in lines)
