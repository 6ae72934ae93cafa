"""docs/configuration.md and the files in etc/ say what is true."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from outboxd import redact
from outboxd.config import admin, document, jobs, keys, lanes, load, publishers, queue_keys, queues, schema
from outboxd.config.load import parse
from outboxd.config.report import Report

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "configuration.md").read_text()
(TOKENS,) = re.findall(r"```yaml\n(- name: .*?)```", DOCUMENT, re.DOTALL)
SECRETS = {
    "database_password": "secret-of-the-database",
    "webhook_authorization": "Bearer secret-of-the-receiver",
    "webhook_secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    "admin_token": "token-of-the-administrator",
    "admin_tokens.yaml": TOKENS,
    "redis_password": "secret-of-redis",
    "rocketmq_access_key": "relay",
    "rocketmq_secret_key": "secret-of-rocketmq",
    "tencent_key": "secret-of-the-app",
}
OF_TYPE: dict[str, dict[str, Any]] = {
    "redis_streams": {"type": "redis_streams"},
    "kafka": {"type": "kafka", "bootstrap_servers": "k:1", "topic": "t"},
    "rocket_launch": {"type": "rocket_launch"},
    "activity_grpc": {"type": "activity_grpc", "target": "a:1"},
    "tencent_im": {"type": "tencent_im", "apps": {"": {"sdk_app_id": 1, "identifier": "a", "secret_key": "s"}}},
}
"""Publishers whose keys are documented by themselves, as little as they need."""
OF_ALL = publishers.OF_EVERY.keys()


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was taken for a secret here must not be masked in the texts of other tests."""
    monkeypatch.setattr(redact, "_known", frozenset())


class Row(NamedTuple):
    key: str
    kind: str
    default: str
    example: str
    meaning: str


def rows() -> list[Row]:
    cells = (re.split(r"(?<!\\) \| ", line.strip("| ")) for line in DOCUMENT.splitlines() if line.startswith("| `"))
    return [Row(*(cell.strip() for cell in row)) for row in cells if len(row) == 5]


def known_keys() -> set[str]:
    def below(path: str, table: Iterable[str]) -> set[str]:
        return {path + name for name in table}

    http, python = publishers.KEYS["http"], publishers.KEYS["python"]
    named = {**http, **python, "type": None}
    del named["breaker"]
    return (
        below("", load.TOP)
        | below("database.", load.DATABASE)
        | below("supervisor.", keys.SUPERVISOR)
        | below("admin.", admin.ADMIN)
        | below("outbox_worker.", lanes.KEYS)
        | below("jobs.", jobs.JOBS)
        | below("publishers.<name>.", named)
        | below("publishers.<name>.breaker.", keys.BREAKER)
        | {key for kind in OF_TYPE for key in below(f"publishers.<{kind}>.", publishers.KEYS[kind].keys() - OF_ALL)}
        | below("redis.", queue_keys.REDIS)
        | below("rocketmq.", queues.SECTION)
        | below("rocketmq.room_outbox.", queues.OUTBOX)
        | below("rocketmq.rocket_launch.", queues.WAKEUPS)
        | below("bridge.", queues.BRIDGE)
        | below("log.", keys.LOG)
    )


def base(key: str) -> dict[str, Any]:
    """What no file can do without, as far as it concerns a key."""
    *sections, last = key.split(".")
    made: dict[str, Any] = {"outbox_worker": {"direct": ["console"]}, "publishers": {}}
    for name in ("console", "webhook"):
        made["publishers"][name] = {"type": "console"}
    if sections[:1] == ["publishers"]:
        http, python = {"type": "http", "url": "http://h/"}, {"type": "python", "target": "a:b"}
        own = OF_TYPE.get(sections[1].strip("<>"))
        made["publishers"]["hook"] = dict(own or (python if last in ("target", "threads") else http))
    if sections[:1] in (["rocketmq"], ["bridge"]):
        made["redis"] = {"url": "redis://r/0"}
        made["publishers"] |= {"im": OF_TYPE["tencent_im"], "rooms": OF_TYPE["tencent_im"]}
        made["rocketmq"] = {"enabled": True, "room_outbox": {"enabled": True}, "rocket_launch": {"enabled": True}}
        made["bridge"] = {"enabled": sections[:1] == ["bridge"]}
        if last in ("tencent_im_consumer_group", "consumer_max_reconsume_times"):
            made["rocketmq"]["room_outbox"]["tencent_im_consumer_enabled"] = True
        place = made
        for section in sections:
            place = place[section]
        place.pop(last, None)
    return made


def with_key(key: str, cell: str, tmp_path: Path) -> dict[str, Any]:
    """The same with the key given as the cell says; the files it names are there."""
    for name in re.findall(r"/run/secrets/([a-z_.]+)", cell):
        (tmp_path / name).write_text(SECRETS.get(name, "certificate"))
    value = document.read(cell.replace("/run/secrets", str(tmp_path)), {}, Report("cell"))
    made = base(key)
    *sections, last = re.sub("<[a-z_]+>", "hook", key).split(".")
    place = made
    for section in sections:
        place = place.setdefault(section, {})
    if last == "type":
        place.clear()
    if last == "client_key_file" and value:
        place["client_cert_file"] = value
    if last == "password_file" and value:
        place["url"] = "redis://h" if sections == ["redis"] else "mysql://u@h/d"
    if last == "publish_mode" and value != "direct":
        made["publishers"]["bus"] = {**OF_TYPE["redis_streams"], "url": "redis://h"}
        place["mq"] = "bus"
    if value and (pair := re.fullmatch("(access|secret)_key(_file)?", last)) and sections == ["rocketmq"]:
        place["secret_key" if pair[1] == "access" else "access_key"] = "its pair"
    place[last] = {**place.get(last, {}), **value} if isinstance(value, dict) else value
    return made


def used(text: dict[str, Any]) -> schema.Config:
    return parse(json.dumps(text), {}, "test")


def plain(cell: str) -> str:
    return cell.strip("`")


def test_every_key_is_documented_once_and_no_other() -> None:
    documented = [plain(row.key) for row in rows()]
    assert len(documented) == len(set(documented))
    assert set(documented) == known_keys()


@pytest.mark.parametrize("row", [row for row in rows() if row.default != "none"], ids=lambda row: plain(row.key))
def test_the_documented_default_is_what_holds_without_the_key(row: Row, tmp_path: Path) -> None:
    """Setting a key to its default must change nothing."""
    key = plain(row.key)
    assert used(with_key(key, plain(row.default), tmp_path)) == used(base(key))


@pytest.mark.parametrize("row", rows(), ids=lambda row: plain(row.key))
def test_the_documented_example_can_be_used_and_changes_something(row: Row, tmp_path: Path) -> None:
    key = plain(row.key)
    changed = used(with_key(key, plain(row.example), tmp_path)) != used(base(key))
    # These examples say what holds, or what the test's own file says, anyway; two keys are for others to read.
    ours = {"outbox_worker", "publishers"}
    theirs = {"rocketmq.rocket_launch.consumer_group", "rocketmq.rocket_launch.consumer_max_reconsume_times"}
    assert changed is (key not in ours | theirs)


def test_the_defaults_are_those_of_the_schema() -> None:
    """Pinned by hand: a default is a promise to who never wrote the key."""
    lane = schema.Lane(name="x")
    assert (lane.concurrency, lane.poll_interval_s, lane.batch_size, lane.publish_timeout_s, lane.lease_s) == (
        4, 1, 100, 3, 15,
    )  # fmt: skip
    assert (lane.max_inflight_bytes, lane.max_event_bytes, lane.max_retry_count) == (16 * 2**20, 8 * 2**20, 10)
    assert (lane.initial_backoff_s, lane.max_backoff_s, lane.direct) == (5, 300, ())
    assert (lane.ordering, lane.on_dead) == ("none", "continue")
    assert (schema.Admin().host, schema.Admin().port, schema.Admin().tokens) == ("127.0.0.1", 9464, ())
    supervisor = schema.Supervisor()
    assert (supervisor.restart_backoff_s, supervisor.restart_backoff_max_s) == (0.5, 30)
    assert (supervisor.stable_after_s, supervisor.startup_timeout_s) == (60, 30)
    assert (schema.Database().connect_timeout_s, schema.Database().statement_timeout_s) == (5, 5)
    assert schema.Breaker() == schema.Breaker(
        enabled=True, distinct_events=5, dead_brake=20, initial_probe_s=1, max_probe_s=30
    )


@pytest.mark.parametrize("column", schema.RENAMABLE)
def test_every_column_that_can_be_renamed_is_documented(column: str) -> None:
    assert f"`{column}`" in DOCUMENT


def test_the_configuration_at_the_top_of_the_document_can_be_used(tmp_path: Path) -> None:
    text, *_ = re.findall(r"```yaml\n(.*?)```", DOCUMENT, re.DOTALL)
    for name, secret in SECRETS.items():
        (tmp_path / name).write_text(secret)
    config = parse(text.replace("/run/secrets", str(tmp_path)), {}, "document")
    assert config.lanes["orders_outbox"].lease_s == 32
    assert config.warnings == ()


def load_etc(name: str, environ: dict[str, str]) -> schema.Config:
    return load.load(str(ROOT / "etc" / name), environ)


def test_the_embedded_default_can_be_used_as_it_is() -> None:
    config = load_etc("outbox.yaml", {})
    assert config.database == schema.Database()
    assert {name: lane.direct for name, lane in config.lanes.items()} == {"room_outbox": ("console",)}
    assert config.publishers == {"console": schema.Console(name="console")}
    assert config.warnings == ()


def test_the_configuration_for_docker_takes_its_addresses_from_the_environment() -> None:
    environ: dict[str, Any] = {
        "OUTBOXD_DATABASE_URL": "mysql://u:secret-of-docker@db/app",
        "OUTBOXD_WEBHOOK_URL": "http://receiver:9000/events",
    }
    config = load_etc("outbox.docker.yaml", environ)
    assert (config.database.host, config.database.name, config.database.password) == ("db", "app", "secret-of-docker")
    assert config.publishers == {"webhook": schema.Http(name="webhook", url="http://receiver:9000/events")}
    assert config.lanes["room_outbox"].direct == ("webhook",)
    assert config.warnings == ()


@pytest.mark.parametrize("variable", ["CREDENTIALS_DIRECTORY", None])
def test_the_configuration_for_systemd_takes_its_secrets_from_where_systemd_or_root_has_them(
    variable: str | None, tmp_path: Path
) -> None:
    """The same file is for the service, which is handed its credentials, and for the commands that root types."""
    (tmp_path / "database_password").write_text(SECRETS["database_password"])
    text = (ROOT / "etc" / "outbox.systemd.yaml").read_text()
    if variable is None:
        text = text.replace("/etc/outboxd}", f"{tmp_path}}}")
    config = parse(text, {variable: str(tmp_path)} if variable else {}, "etc/outbox.systemd.yaml")
    assert config.database.password == SECRETS["database_password"]
    assert config.lanes["room_outbox"].direct == ("webhook",)
    assert config.warnings == ()


def test_the_configuration_for_tencent_takes_its_secrets_from_files(tmp_path: Path) -> None:
    """Every part of it is on: the queue, the bridge, the wake-ups, Tencent IM."""
    environ: dict[str, Any] = {
        "OUTBOXD_DATABASE_URL": "mysql://u@db/app",
        "OUTBOXD_ROCKETMQ_ENDPOINTS": "proxy-1:8081;proxy-2:8081",
        "OUTBOXD_TENCENT_SDK_APP_ID": "1400000001",
    }
    secrets = ("DATABASE_PASSWORD", "ROCKETMQ_ACCESS_KEY", "ROCKETMQ_SECRET_KEY", "TENCENT_SECRET_KEY")
    for name in secrets:
        (tmp_path / name).write_text(f"secret-of-{name}")
        environ[f"OUTBOXD_{name}_FILE"] = str(tmp_path / name)
    config = load_etc("outbox.tencent.example.yaml", environ)
    assert config.warnings == ()
    assert (config.database.host, config.database.password) == ("db", "secret-of-DATABASE_PASSWORD")
    im = config.publishers["im"]
    assert isinstance(im, schema.TencentIm)
    assert im.hosts == ("https://console.tim.qq.com", "https://adminapi.my-imcloud.com")
    key = "secret-of-TENCENT_SECRET_KEY"
    assert im.apps == {"": schema.TencentApp(sdk_app_id=1400000001, identifier="administrator", secret_key=key)}
    queue = config.publishers["rocketmq"]
    assert isinstance(queue, schema.RocketMq)
    assert (queue.server.endpoints, queue.server.secret_key) == (
        "proxy-1:8081;proxy-2:8081", "secret-of-ROCKETMQ_SECRET_KEY",
    )  # fmt: skip
    assert (config.bridge.enabled, config.bridge.source, config.bridge.publisher) == (True, "rocketmq", "im")
    assert config.lanes["room_outbox"].publish_mode == "mq"
    assert isinstance(config.publishers["rocket_launch"], schema.RocketLaunch)


def test_where_less_than_zero_may_be_written_what_it_means_is_said() -> None:
    """The same as `0s`: a lane that turns off what all lanes have."""
    below = [name for name, key in lanes.KEYS.items() if key.low is not None and key.low < 0]
    assert "retention" in below
    for name in below:
        (row,) = re.findall(rf"^\| `outbox_worker\.{name}` .*$", DOCUMENT, re.MULTILINE)
        assert "`0s`, or below: " in row, name
