"""Settings of message queues and of the receivers that speak their own protocols; part of schema.py."""

from dataclasses import dataclass, field
from typing import ClassVar

from outboxd.config.schema_publisher import PublisherSettings

REGIONS = {
    "china": ("console.tim.qq.com", "adminapi.my-imcloud.com"),
    "singapore": ("adminapisgp.im.qcloud.com", "adminapisgp.my-imcloud.com"),
    "seoul": ("adminapikr.im.qcloud.com", "adminapikr.my-imcloud.com"),
    "tokyo": ("adminapijpn.im.qcloud.com", "adminapijpn.my-imcloud.com"),
    "frankfurt": ("adminapiger.im.qcloud.com", "adminapiger.my-imcloud.com"),
    "silicon_valley": ("adminapiusa.im.qcloud.com", "adminapiusa.my-imcloud.com"),
    "jakarta": ("adminapiidn.im.qcloud.com", "adminapiidn.my-imcloud.com"),
}
"""Tencent IM: region → main host and backup host. Source: Tencent Cloud document 269/1519, REST API overview."""
GROUP_TYPES = ("Private", "Public", "ChatRoom", "AVChatRoom", "Community")
BRIDGE_SOURCES = ("rocketmq", "redis_streams")
WAKEUP_CARRIERS = ("rocketmq", "redis")


@dataclass(frozen=True, slots=True, kw_only=True)
class Redis:
    """A Redis server. url: with its password, also one from password_file; None: none is configured."""

    url: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisStreams(PublisherSettings):
    """Appends events to one stream, cut to about max_length entries; 0: never cut. url: None if no lane uses it."""

    type: ClassVar[str] = "redis_streams"

    url: str | None = field(default=None, repr=False)
    stream: str = "room_outbox"
    max_length: int = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka(PublisherSettings):
    """Produces to one topic, key = room_id. options: librdkafka's own, by its names."""

    type: ClassVar[str] = "kafka"

    bootstrap_servers: str
    topic: str
    options: dict[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RocketMqServer:
    """A RocketMQ 5 proxy and how to speak to it. retry: attempts of the client after the first one."""

    endpoints: str = "127.0.0.1:8081"
    access_key: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)
    namespace: str = ""
    tls: bool = False
    send_timeout_s: float = 3.0
    retry: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RocketMq(PublisherSettings):
    """Sends events to one NORMAL topic."""

    type: ClassVar[str] = "rocketmq"

    server: RocketMqServer
    topic: str = "hyapp_room_outbox"


@dataclass(frozen=True, slots=True, kw_only=True)
class RocketLaunch(PublisherSettings):
    """Schedules a delayed wake-up for every RoomRocketIgnited. carrier: of WAKEUP_CARRIERS; rocketmq: to a DELAY topic
    of `server`; redis: into the sorted set `key` at `url`.
    """

    type: ClassVar[str] = "rocket_launch"

    events: tuple[str, ...] = ("RoomRocketIgnited",)
    carrier: str = "rocketmq"
    server: RocketMqServer | None = None
    topic: str = "hyapp_room_rocket_launch"
    url: str | None = field(default=None, repr=False)
    key: str = "outboxd:wakeups"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityGrpc(PublisherSettings):
    """Calls ActivityService.ConsumeRoomEvent."""

    type: ClassVar[str] = "activity_grpc"

    target: str
    tls: bool = False
    ca_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TencentApp:
    """One tenant at Tencent IM."""

    sdk_app_id: int
    identifier: str
    secret_key: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TencentIm(PublisherSettings):
    """Speaks to Tencent IM's REST API. hosts: main and backup, base URLs. apps: by app_code. group_id: a template."""

    type: ClassVar[str] = "tencent_im"

    apps: dict[str, TencentApp]
    hosts: tuple[str, ...] = ()
    group_type: str = "ChatRoom"
    group_id: str = "{room_id}"
    group_owner: str | None = None
    silent_events: tuple[str, ...] = ()
    connections: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Bridge:
    """From a queue to Tencent IM. source: of BRIDGE_SOURCES. publisher: the name of a tencent_im publisher.
    url: of Redis, which remembers what is done, too; None: the database does. publish_timeout_s: that of outbox_worker.
    """

    enabled: bool = False
    source: str = "rocketmq"
    server: RocketMqServer | None = None
    topic: str = "hyapp_room_outbox"
    url: str | None = field(default=None, repr=False)
    stream: str = "room_outbox"
    group: str = "hyapp-room-im-bridge"
    publisher: str = "im"
    concurrency: int = 1
    max_reconsume_times: int = 16
    publish_timeout_s: float = 3.0
