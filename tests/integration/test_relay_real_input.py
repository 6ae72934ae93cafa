"""Real payloads, all the way from the table to a receiver that reads them with the CloudEvents SDK."""

from collections import Counter
from pathlib import Path

from cloudevents.core.bindings.http import HTTPMessage, from_http_event

from tests.services.daemon import Daemon, write_config
from tests.services.lanes import event, table_of
from tests.services.payloads import Payload
from tests.services.recorder import read, recording

TIMES = 40


def test_real_input_arrives_byte_for_byte_and_once(mysql_url: str, tmp_path: Path, payloads: list[Payload]) -> None:
    """Real input: about 10,000 events, nothing changed, nothing missing, nothing twice."""
    rows = {
        f"{number}-{turn}": event(
            event_id=f"{number}-{turn}", event_type=kind, room_id=room, app_code=f"app-{turn % 3}", envelope=payload
        )
        for turn in range(TIMES)
        for number, (kind, room, payload) in enumerate(payloads)
    }
    with recording(tmp_path) as (url, requests_file):
        config = write_config(tmp_path / "outbox.yaml", mysql_url, {"web": {"type": "http", "url": url}}, concurrency=4)
        with table_of(config) as table:
            table.insert(rows.values())
            with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
                daemon.wait_until(table.is_done, "every event to be settled", timeout_s=90)
                daemon.drain(config.lanes["room_outbox"].publish_timeout_s)
            settled = {str(row["event_id"]): row for row in table.rows()}
    requests = read(requests_file)
    assert Counter(request.event_id for request in requests) == Counter(dict.fromkeys(rows, 1))
    for request in requests:
        parsed = from_http_event(HTTPMessage(request.headers, request.body))
        row = rows[parsed.get_id()]
        assert request.body == row["envelope"]
        attributes = parsed.get_attributes()
        assert attributes["type"] == row["event_type"]
        assert attributes["subject"] == attributes["partitionkey"] == row["room_id"]
        assert attributes["appcode"] == row["app_code"]
        assert attributes["source"] == "/outboxd/room_outbox"
        assert int(attributes["time"].timestamp() * 1000) == settled[parsed.get_id()]["created_at_ms"]
    assert {(row["status"], row["retry_count"], row["last_error"]) for row in settled.values()} == {
        ("delivered", 0, None)
    }
    assert len({row["worker_id"] for row in settled.values()}) == 4, "one worker did it all: nothing was tested"
