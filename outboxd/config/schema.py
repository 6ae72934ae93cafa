"""Every setting of outboxd, its default and its unit, once. Frozen data, no I/O.

A key in the file has the name of its attribute here, without the unit: `poll_interval: 1s` becomes `poll_interval_s`.
Bounds and the rules between keys are in `keys.py` and its neighbours; `docs/configuration.md` explains each key.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from outboxd.config.schema_publisher import Breaker, PublisherSettings
from outboxd.config.schema_queues import (
    BRIDGE_SOURCES,
    GROUP_TYPES,
    REGIONS,
    WAKEUP_CARRIERS,
    ActivityGrpc,
    Bridge,
    Kafka,
    Redis,
    RedisStreams,
    RocketLaunch,
    RocketMq,
    RocketMqServer,
    TencentApp,
    TencentIm,
)

__all__ = [
    "BRIDGE_SOURCES",
    "COLUMNS",
    "GROUP_TYPES",
    "HTTP_FORMATS",
    "LOG_FORMATS",
    "LOG_LEVELS",
    "MAX_DIRECT",
    "ON_DEAD",
    "ORDERINGS",
    "PARTITIONS",
    "PERMISSIONS",
    "PUBLISH_MODES",
    "REGIONS",
    "RENAMABLE",
    "RETRY_STRATEGIES",
    "SSL_MODES",
    "WAKEUP_CARRIERS",
    "ActivityGrpc",
    "Admin",
    "Breaker",
    "Bridge",
    "Config",
    "Console",
    "Database",
    "Http",
    "Kafka",
    "Lane",
    "Log",
    "Null",
    "PublisherSettings",
    "PythonCallable",
    "Redis",
    "RedisStreams",
    "RocketLaunch",
    "RocketMq",
    "RocketMqServer",
    "Supervisor",
    "TencentApp",
    "TencentIm",
    "Token",
    "least_lease_s",
]  # fmt: skip

PUBLISH_MODES = ("direct", "mq", "dual")
EXPONENTIAL = "exponential_backoff"
RETRY_STRATEGIES = (EXPONENTIAL, "fixed_interval")
BY_ROOM, BLOCK = "room", "block"
ORDERINGS = ("none", BY_ROOM)
ON_DEAD = ("continue", BLOCK)
PARTITIONS = 64
"""Of an ordered lane's rooms. A worker leases whole partitions, so more workers than these have nothing to do."""
HTTP_FORMATS = ("cloudevents", "cloudevents_structured", "raw")
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("json", "console")
SSL_MODES = ("DISABLED", "PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")
MAX_DIRECT = 8
"""Publishers of one lane: their names and marks must fit `published_to`."""

COLUMNS = (
    "id", "app_code", "event_id", "event_type", "room_id", "envelope", "content_type", "headers", "status", "worker_id",
    "claim_token", "lock_until_ms", "retry_count", "next_retry_at_ms", "published_to", "last_error", "created_at_ms",
    "updated_at_ms", "delivered_at_ms", "due_at_ms",
)  # fmt: skip
"""Our names of every lane's columns."""
ROOM_PARTITION = "room_partition"
"""The column that an ordered lane's table has beside them."""
RENAMABLE = (*COLUMNS, ROOM_PARTITION)
"""The keys of `Lane.columns`."""


def least_lease_s(publish_timeout_s: float) -> float:
    """The shortest lease that outlives a publish: it is renewed at half-life, and a publish must fit behind that."""
    return 3 * publish_timeout_s + 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """Where the lanes are. `url` is as given; the other fields are what it says, percent-decoded.

    scheme: "sqlite" (only `path` is set, relative to the working directory unless it begins with a slash) or "mysql"
    (`host`, `port`, `user`, `name` are set; `host` is "" when `unix_socket` is given without one). `password` comes
    from the URL or from `password_file`; None: none.
    """

    url: str = field(default="sqlite:///outboxd.db", repr=False)
    scheme: str = "sqlite"
    path: str = "outboxd.db"
    host: str = ""
    port: int = 3306
    user: str = ""
    password: str | None = field(default=None, repr=False)
    name: str = ""
    unix_socket: str | None = None
    ssl_mode: str | None = None
    ssl_ca: str | None = None
    ssl_cert: str | None = None
    ssl_key: str | None = None
    connect_timeout_s: float = 5.0
    statement_timeout_s: float = 5.0

    @property
    def shown(self) -> str:
        """The address for people and logs: without password and query."""
        if self.scheme == "sqlite":
            return f"sqlite:///{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"mysql://{self.user}@{self.unix_socket or f'{host}:{self.port}'}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervisor:
    """How children are started and replaced."""

    restart_backoff_s: float = 0.5
    restart_backoff_max_s: float = 30.0
    stable_after_s: float = 60.0
    startup_timeout_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One outbox table: its workers, publishers and settings. `name` is the table's.

    direct: names of publishers, up to MAX_DIRECT; mq: the name of the queue's. first: publishers that are asked in
    every mode, before the others. columns: our column's name → the table's, only where they differ. `lease_s` is never
    below least_lease_s(publish_timeout_s).
    """

    name: str
    enabled: bool = True
    publish_mode: str = "direct"
    direct: tuple[str, ...] = ()
    mq: str = "rocketmq"
    first: tuple[str, ...] = ()
    concurrency: int = 4
    poll_interval_s: float = 1.0
    batch_size: int = 100
    publish_timeout_s: float = 3.0
    lease_s: float = 15.0
    max_inflight_bytes: int = 16 * 1024 * 1024
    max_event_bytes: int = 8 * 1024 * 1024
    retry_strategy: str = "exponential_backoff"
    max_retry_count: int = 10
    initial_backoff_s: float = 5.0
    max_backoff_s: float = 300.0
    ordering: str = "none"
    on_dead: str = "continue"
    columns: dict[str, str] = field(default_factory=dict)

    @property
    def is_ordered(self) -> bool:
        """Does each room get its events in the order of their ids?"""
        return self.ordering == BY_ROOM

    @property
    def blocks_on_dead(self) -> bool:
        """Does a dead letter hold up its room until a person has decided about it?"""
        return self.is_ordered and self.on_dead == BLOCK

    @property
    def publishers(self) -> tuple[str, ...]:
        """The names of all that get its events, in the order in which they are asked: all of them must accept."""
        direct = () if self.publish_mode == "mq" else self.direct
        queue = () if self.publish_mode == "direct" else (self.mq,)
        return tuple(dict.fromkeys((*self.first, *direct, *queue)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Console(PublisherSettings):
    """Prints events."""

    type: ClassVar[str] = "console"


@dataclass(frozen=True, slots=True, kw_only=True)
class Null(PublisherSettings):
    """Accepts every event and does nothing with it."""

    type: ClassVar[str] = "null"


@dataclass(frozen=True, slots=True, kw_only=True)
class Http(PublisherSettings):
    """POSTs events to one URL.

    source: CloudEvents source, `{lane}` in it stands for the lane's name. headers: static ones, name as given → value.
    authorization: value of the Authorization header. secret: the decoded Standard Webhooks key.
    """

    type: ClassVar[str] = "http"

    url: str = field(repr=False)
    format: str = "cloudevents"
    source: str = "/outboxd/{lane}"
    connections: int = 32
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    authorization: str | None = field(default=None, repr=False)
    forward_headers: tuple[str, ...] = ()
    secret: bytes | None = field(default=None, repr=False)
    ca_file: str | None = None
    client_cert_file: str | None = None
    client_key_file: str | None = None
    permanent_statuses: frozenset[int] = frozenset({400, 413, 422})


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonCallable(PublisherSettings):
    """Calls your own function or class, `target` = "package.module:name", in `threads` threads per process."""

    type: ClassVar[str] = "python"

    target: str
    threads: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """What is logged and how."""

    level: str = "info"
    format: str = "json"


PERMISSIONS = ("lanes:read", "events:read", "dead:read", "dead:replay", "dead:purge", "dead:skip", "dead:kill")
"""What a token may be good for. `*` stands for any part: `dead:*`."""


@dataclass(frozen=True, slots=True)
class Token:
    """Who may use the admin API. sha256: of the token, in hexadecimal. permissions: of PERMISSIONS, with `*`."""

    name: str
    sha256: str = field(repr=False)
    permissions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Admin:
    """Where the admin role listens. host: "" for no TCP listener. socket: the Unix socket, always there; an absolute
    path. hosts: values of the Host header that are allowed beside the listener's own.
    """

    host: str = "127.0.0.1"
    port: int = 9464
    socket: str = ""
    hosts: tuple[str, ...] = ()
    tokens: tuple[Token, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A whole configuration, checked. lanes: also those that are not enabled. warnings: one line each, for the log.
    metrics_dir: the folder of the metrics' files; None: a private one in the runtime directory.
    secrets: every known secret, for `redact.register`.
    """

    node_id: str
    metrics_dir: str | None = None
    database: Database = Database()
    supervisor: Supervisor = Supervisor()
    admin: Admin = Admin()
    redis: Redis = field(default_factory=Redis)
    bridge: Bridge = field(default_factory=Bridge)
    lanes: dict[str, Lane] = field(default_factory=dict)
    publishers: dict[str, PublisherSettings] = field(default_factory=dict)
    log: Log = Log()
    warnings: tuple[str, ...] = ()
    secrets: tuple[str, ...] = field(default=(), repr=False)
