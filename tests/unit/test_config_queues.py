"""The sections redis, rocketmq and bridge, publish modes, and the publishers that speak to queues."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from outboxd.config.load import parse
from outboxd.config.schema import (
    ActivityGrpc,
    Bridge,
    Config,
    Kafka,
    RedisStreams,
    RocketLaunch,
    RocketMq,
    RocketMqServer,
    TencentApp,
    TencentIm,
)
from outboxd.errors import ConfigError

HEAD = "publishers: {console: {type: console}, bus: {type: redis_streams}}\nredis: {url: 'redis://r:6379/2'}\n"
IM = {"type": "tencent_im", "apps": {"": {"sdk_app_id": 1, "identifier": "a", "secret_key": "s"}}}
NO_GROUP = "no name of a group: visible ASCII, at most 40 characters"
NO_QUEUE = (
    "lanes.a.publish_mode: {} needs an enabled queue publisher, and {}, which mq names, {}: set rocketmq.enabled and "
    "rocketmq.room_outbox.enabled, or name in mq a publisher of type redis_streams or kafka, or use direct"
)


def read(text: str) -> Config:
    """What the text is, as a whole configuration."""
    return parse(text, {}, "f")


def problems(text: str) -> list[str]:
    """What is wrong with it."""
    with pytest.raises(ConfigError) as raised:
        read(text)
    return [problem.removeprefix("f: ") for problem in raised.value.problems]


def also(publisher: dict[str, Any]) -> dict[str, Any]:
    """The section `publishers` with one more."""
    return {"publishers": {"console": {"type": "console"}, "im": publisher}}


def merged(**sections: Any) -> str:
    """The head's sections, and these."""
    return json.dumps({**yaml.safe_load(HEAD), **sections})


@pytest.mark.parametrize(
    ("lane", "asked"),
    [
        ({"direct": ["console"]}, ("console",)),
        ({"publish_mode": "mq", "mq": "bus"}, ("bus",)),
        ({"publish_mode": "mq", "mq": "bus", "direct": ["console"]}, ("bus",)),
        ({"publish_mode": "dual", "mq": "bus", "direct": ["console"]}, ("console", "bus")),
        ({"publish_mode": "dual", "mq": "bus", "direct": ["bus", "console"]}, ("bus", "console")),
    ],
)
def test_a_publish_mode_says_who_is_asked(lane: dict[str, Any], asked: tuple[str, ...]) -> None:
    assert read(merged(lanes={"a": lane})).lanes["a"].publishers == asked


@pytest.mark.parametrize("mode", ["mq", "dual"])
@pytest.mark.parametrize(
    ("lane", "named", "why"),
    [
        ({}, "rocketmq", "does not exist"),
        ({"mq": "console"}, "console", "is no queue's publisher"),
        ({"mq": "buss"}, "buss", "does not exist"),
    ],
)
def test_a_mode_with_a_queue_needs_the_queue(mode: str, lane: dict[str, Any], named: str, why: str) -> None:
    """Started without it, the lane would hold everything without a word."""
    text = merged(lanes={"a": {"publish_mode": mode, "direct": ["console"], **lane}})
    assert problems(text) == [NO_QUEUE.format(mode, named, why)]


def test_a_disabled_rocketmq_is_no_queue_and_its_parts_are_said_to_do_nothing() -> None:
    mq = {"room_outbox": {"enabled": True}}
    text = merged(rocketmq=mq, lanes={"a": {"publish_mode": "mq"}})
    assert problems(text) == [NO_QUEUE.format("mq", "rocketmq", "does not exist")]
    config = read(merged(rocketmq=mq, lanes={"a": {"direct": ["console"]}}))
    assert "rocketmq.room_outbox: has no effect, since rocketmq.enabled is false" in "".join(config.warnings)


ROCKETMQ = """
rocketmq:
  enabled: true
  endpoints: 127.0.0.1:8081
  name_servers: ["127.0.0.1:9876"]
  name_server_domain: "ns.internal"
  access_key: me
  secret_key: hush
  namespace: hyapp
  send_timeout: 3s
  retry: 2
  room_outbox:
    enabled: true
    topic: hyapp_room_outbox
    producer_group: hyapp-room-outbox-producer
    tencent_im_consumer_enabled: true
    tencent_im_consumer_group: hyapp-room-im-bridge
    consumer_max_reconsume_times: 16
  rocket_launch:
    enabled: true
    topic: hyapp_room_rocket_launch
    producer_group: hyapp-room-rocket-open-producer
    consumer_group: hyapp-room-rocket-open
    consumer_max_reconsume_times: 16
outbox_worker:
  enabled: true
  publish_mode: mq
  concurrency: 4
  poll_interval: 1s
  batch_size: 100
  publish_timeout: 3s
  retry_strategy: exponential_backoff
  max_retry_count: 10
  initial_backoff: 5s
  max_backoff: 5m
publishers:
  im: {type: tencent_im, apps: {"": {sdk_app_id: 1400000000, identifier: admin, secret_key: hush-too}}}
"""


def test_the_blocks_of_the_older_room_worker_load_and_do_what_they_say() -> None:
    config = read(ROCKETMQ)
    server = RocketMqServer(
        endpoints="127.0.0.1:8081", access_key="me", secret_key="hush", namespace="hyapp", send_timeout_s=3.0, retry=2
    )
    lane = config.lanes["room_outbox"]
    assert lane.publishers == ("rocket_launch", "rocketmq")
    assert config.lanes["room_robot_outbox"].first == ()
    assert config.publishers["rocketmq"] == RocketMq(name="rocketmq", server=server)
    assert config.publishers["rocket_launch"] == RocketLaunch(name="rocket_launch", server=server)
    assert config.bridge == Bridge(enabled=True, server=server)


def test_older_keys_of_rocketmq_are_accepted_and_explained() -> None:
    why = "is not used: the RocketMQ 5 client speaks to the proxy, whose address belongs into rocketmq.endpoints"
    no_groups = "is not used: producers of RocketMQ 5 are in no group"
    assert sorted(read(ROCKETMQ).warnings) == [
        f"rocketmq.name_server_domain: {why}",
        f"rocketmq.name_servers: {why}",
        f"rocketmq.rocket_launch.producer_group: {no_groups}",
        f"rocketmq.room_outbox.producer_group: {no_groups}",
    ]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("endpoints: 127.0.0.1:8081", "endpoints: nowhere",
         "rocketmq.endpoints: 'nowhere' is no address, write e.g. proxy-1:8081;proxy-2:8081"),
        ("  secret_key: hush\n", "",
         "rocketmq: has one of access_key and secret_key, give both or neither"),
        ("topic: hyapp_room_outbox", "topic: a.b",
         "rocketmq.room_outbox.topic: 'a.b' is no name of a topic: letters, digits, '_', '-' and '%'"),
        ("tencent_im_consumer_group: hyapp-room-im-bridge", "tencent_im_consumer_group: a b",
         f"rocketmq.room_outbox.tencent_im_consumer_group: 'a b' is {NO_GROUP}"),
        ("  rocket_launch:\n", "  rocket_lunch:\n",
         "rocketmq.rocket_lunch: unknown key, did you mean rocket_launch?"),
        ("  send_timeout: 3s", "  send_timeot: 3s", "rocketmq.send_timeot: unknown key, did you mean send_timeout?"),
        ("type: tencent_im", "type: console",
         "publishers.im.apps: unknown key, known here: events, max_rate, breaker"),
        ("{type: tencent_im, apps", "{type: tencent_im, silent_events: 3, apps",
         "publishers.im.silent_events: expected a list, got a number, write [one, two]"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_rocketmq_is_one_line(old: str, new: str, problem: str) -> None:
    assert old in ROCKETMQ
    assert problem in problems(ROCKETMQ.replace(old, new))


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ({"redis": {"url": "http://x"}}, "redis.url: "),
        ({"redis": {"password_file": "/nowhere"}}, "redis.password_file: "),
        ({"bridge": {"group": "房间"}},
         f"bridge.group: '房间' is {NO_GROUP}"),
        ({"bridge": {"group": "g" * 41}}, "bridge.group: 'ggg"),
        ({"bridge": {"enabled": True}, **also(IM)},
         "bridge.source: rocketmq is not enabled: set rocketmq.enabled, or source: redis_streams"),
        ({"bridge": {"enabled": True, "source": "redis_streams"}},
         "bridge.publisher: 'im' is no publisher of type tencent_im, define one under publishers"),
        ({"bridge": {"enabled": True, "source": "redis_streams", "publisher": "console"}},
         "bridge.publisher: 'console' is no publisher of type tencent_im, define one under publishers"),
        (also({"type": "redis_streams", "stream": ""}), "publishers.im.stream: "),
        (also({"type": "kafka", "topic": "t"}), "publishers.im: has no bootstrap_servers, which type kafka needs"),
        (also({"type": "kafka", "topic": "t", "bootstrap_servers": "k:1", "options": {"acks": 0}}),
         "publishers.im.options.acks: outboxd sets that option itself, remove it"),
        (also({"type": "activity_grpc", "target": "nowhere"}),
         "publishers.im.target: 'nowhere' is no address, write e.g. activity.internal:9090"),
        (also({"type": "tencent_im", "apps": {}}), "publishers.im.apps: "),
        (also({**IM, "group_id": "one"}),
         "publishers.im.group_id: names no {room_id}, so that all rooms would be one group"),
        (also({"type": "tencent_im", "apps": {"hy": {"sdk_app_id": 1, "identifier": "a"}}}),
         "publishers.im.apps.hy: has no secret_key"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_queue_is_one_line(section: dict[str, Any], problem: str) -> None:
    (line,) = problems(merged(**{"lanes": {"a": {"direct": ["console"]}}, **section}))
    assert line.startswith(problem)


def test_a_group_may_have_forty_characters() -> None:
    config = read(merged(lanes={"a": {"direct": ["console"]}}, bridge={"group": "g" * 40}))
    assert config.bridge.group == "g" * 40


def test_publishers_of_queues_get_what_the_file_says(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("from-a-file\n")
    app = {"sdk_app_id": 7, "identifier": "admin", "secret_key_file": str(secret)}
    config = read(merged(
        lanes={"a": {"direct": ["console"]}},
        publishers={
            "console": {"type": "console"},
            "bus": {"type": "redis_streams"},
            "other": {"type": "redis_streams", "url": "redis://other:1/0", "stream": "s", "max_length": 0},
            "log": {"type": "kafka", "bootstrap_servers": "k1:9092,k2:9092", "topic": "t",
                    "options": {"linger.ms": 5, "socket.keepalive.enable": True}},
            "activity": {"type": "activity_grpc", "target": "activity.internal:9090", "tls": True},
            "rockets": {"type": "rocket_launch"},
            "im": {"type": "tencent_im", "region": "tokyo", "apps": {"hy": app}},
            "im2": {"type": "tencent_im", "base_url": "http://127.0.0.1:1/", "apps": {"": app}},
        },
    ))  # fmt: skip
    assert config.publishers["bus"] == RedisStreams(name="bus", url="redis://r:6379/2")
    assert config.publishers["other"] == RedisStreams(name="other", url="redis://other:1/0", stream="s", max_length=0)
    options = {"linger.ms": "5", "socket.keepalive.enable": "true"}
    assert config.publishers["log"] == Kafka(
        name="log", bootstrap_servers="k1:9092,k2:9092", topic="t", options=options
    )
    assert config.publishers["activity"] == ActivityGrpc(name="activity", target="activity.internal:9090", tls=True)
    assert config.publishers["rockets"] == RocketLaunch(name="rockets", carrier="redis", url="redis://r:6379/2")
    tenant = TencentApp(sdk_app_id=7, identifier="admin", secret_key="from-a-file")
    hosts = ("https://adminapijpn.im.qcloud.com", "https://adminapijpn.my-imcloud.com")
    assert config.publishers["im"] == TencentIm(name="im", apps={"hy": tenant}, hosts=hosts)
    assert config.publishers["im2"] == TencentIm(name="im2", apps={"": tenant}, hosts=("http://127.0.0.1:1",))


def test_a_publisher_without_a_server_is_refused_once_a_lane_names_it() -> None:
    text = {"publishers": {"bus": {"type": "redis_streams"}}, "lanes": {"a": {"direct": ["bus"]}}}
    (line,) = problems(json.dumps(text))
    assert line.startswith("publishers.bus")


def test_a_rocket_launch_publisher_is_asked_first_in_every_mode() -> None:
    publishers = {**yaml.safe_load(HEAD)["publishers"], "rockets": {"type": "rocket_launch"}}
    for mode, rest in (("direct", ("console",)), ("mq", ("bus",)), ("dual", ("console", "bus"))):
        lane = {"direct": ["console", "rockets"], "mq": "bus", "publish_mode": mode}
        config = read(merged(publishers=publishers, lanes={"a": lane}))
        assert config.lanes["a"].publishers == ("rockets", *rest)
