"""Every setting of outboxd, its default and its unit, once. Frozen data, no I/O.

A key in the file has the name of its attribute here, without the unit: `poll_interval: 1s` becomes `poll_interval_s`.
Bounds and the rules between keys are in `keys.py` and its neighbours; `docs/configuration.md` explains each key.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from outboxd.config.schema_jobs import Jobs
from outboxd.config.schema_lane import (
    BLOCK,
    BY_ROOM,
    COLUMNS,
    EXPONENTIAL,
    MAX_DIRECT,
    ON_DEAD,
    ORDERINGS,
    PARTITIONS,
    PUBLISH_MODES,
    RENAMABLE,
    RETRY_STRATEGIES,
    ROOM_PARTITION,
    Lane,
    least_lease_s,
)
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
    "BLOCK",
    "BRIDGE_SOURCES",
    "BY_ROOM",
    "COLUMNS",
    "EXPONENTIAL",
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
    "ROOM_PARTITION",
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
    "Jobs",
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

HTTP_FORMATS = ("cloudevents", "cloudevents_structured", "raw")
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("json", "console")
SSL_MODES = ("DISABLED", "PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")
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


PERMISSIONS = (
    "lanes:read", "events:read", "dead:read", "dead:replay", "dead:purge", "dead:skip", "dead:kill", "sys:job:list",
    "sys:job:add", "sys:job:update", "sys:job:delete", "sys:job:execute", "sys:job:pause", "sys:job:resume",
)  # fmt: skip
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
    jobs: Jobs = field(default_factory=Jobs)
    log: Log = Log()
    warnings: tuple[str, ...] = ()
    secrets: tuple[str, ...] = field(default=(), repr=False)
