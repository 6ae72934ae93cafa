"""The whole relay in the mode `dual`: a gRPC service that is called, and a Kafka topic."""

import json
from pathlib import Path

import pytest

from outboxd.cli.shared import EXIT_DONE
from outboxd.message import decode
from tests.services.cli import Cli
from tests.services.daemon import ROOT, write_config
from tests.services.grpc_server import start_grpc_server
from tests.services.kafka import Kafka, make_topic, read_topic
from tests.services.lanes import table_of

COUNT = 200
ENVELOPE = json.dumps({"event_id": "e", "event_type": "RoomUserKicked", "body": {"user_id": 7}}).encode()


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path, tmp_path / "outbox.yaml")


def test_each_event_reaches_the_service_and_the_topic(cli: Cli, tmp_path: Path, sqlite_url: str, kafka: Kafka) -> None:
    """G1: once each, where nothing fails; `check` has seen both before."""
    topic = f"dual-{tmp_path.name}"
    make_topic(kafka.servers, topic)
    activity = start_grpc_server(tmp_path)
    publishers = {
        "activity": {"type": "activity_grpc", "target": activity.target},
        "mq": {"type": "kafka", "bootstrap_servers": kafka.servers, "topic": topic},
    }
    settings = write_config(
        tmp_path / "outbox.yaml", sqlite_url, publishers, publish_mode="dual", mq="mq", direct=["activity"]
    )
    with table_of(settings) as table:
        event_ids = table.fill(COUNT, envelope=ENVELOPE)
        said = cli("check").out
        assert f"{activity.target} is reachable over gRPC" in said
        assert f"topic '{topic}', 4 partitions" in said
        assert cli("run", "--until-empty").status == EXIT_DONE
        assert table.by_status() == {"delivered": COUNT}
    assert sorted(call["metadata"]["event-id"] for call in activity.calls()) == sorted(event_ids)
    messages = read_topic(kafka.servers, topic, COUNT)
    assert sorted(decode(message.value() or b"").event_id for message in messages) == sorted(event_ids)
    activity.stop()


def test_a_type_whose_library_is_missing_is_told_with_the_remedy(cli: Cli, tmp_path: Path, sqlite_url: str) -> None:
    """G10: the libraries are extras."""
    publishers = {"activity": {"type": "activity_grpc", "target": "127.0.0.1:9"}}
    write_config(tmp_path / "outbox.yaml", sqlite_url, publishers)
    (tmp_path / "grpc.py").write_text("raise ImportError('no grpc here')")
    without = Cli(tmp_path, tmp_path / "outbox.yaml", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert "type activity_grpc needs pip install 'outboxd[grpc]' (no grpc here)" in without("check").out
