"""Events that end the process that publishes them: they take nobody along, and end as dead letters that say so (G8)."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.services.chaos import FULL
from tests.services.daemon import write_config
from tests.services.journal import SOON_S, check_claims, journal, keep_journal
from tests.services.lanes import event, table_of
from tests.services.nodes import SHORT_LEASE, Node
from tests.services.sinks import published

BATCH = 400
KILLER_AT = 50
WORKERS = 2
CLASS, FUNCTION = "Killing", "dying"

CASES = [
    ("mysql", "Killer", CLASS, 2),
    ("sqlite", "Quitter", FUNCTION, 2),
    ("mysql", "Crasher", FUNCTION, 2),
    ("sqlite", "Killer", CLASS, 3),
    ("mysql", "Killer", CLASS, 10),
    ("sqlite", "Crasher", CLASS, 2),
]
"""Database, how the event ends its process, what kind of publisher does it, after how many deaths it is given up."""


@pytest.mark.parametrize(("kind", "death", "target", "most"), CASES if FULL else CASES[:2])
def test_an_event_that_kills_its_worker_takes_nobody_along(
    kind: str, death: str, target: str, most: int, request: pytest.FixtureRequest, tmp_path: Path, sink: Path
) -> None:
    """G8: one of a batch of 400 kills so many workers as it has attempts, from the second time on alone, and is a dead
    letter; the 399 others are delivered, and none of them has lost more than the batch's own lease."""
    publisher = {"type": "python", "target": f"tests.services.sinks:{target}"}
    settings = {**SHORT_LEASE, "concurrency": WORKERS, "batch_size": BATCH, "max_retry_count": most}
    url: str = request.getfixturevalue(f"{kind}_url")
    config = write_config(tmp_path / "node.yaml", url, {"sink": publisher}, **settings)  # type: ignore[arg-type]
    with table_of(config) as table:
        keep_journal(table)
        table.fill(KILLER_AT - 1)
        table.insert([event(event_id="killer", event_type=death)])
        table.fill(BATCH - KILLER_AT)
        with Node(tmp_path / "node.yaml", WORKERS, sink) as node:
            node.daemon.wait_until(table.is_done, "every event to come to an end", timeout_s=30 + 10 * most)
            deaths = node.daemon.lines("worker_started")[WORKERS:]
            killer, others = table.row("killer"), table.rows("event_id <> 'killer'")
            changes = journal(table)
            node.daemon.drain(0.2)
    check_claims(changes)
    # All 400 are lost at once and come one at a time; the killer is lost again while they do.
    assert max(change.late_s for change in changes if change.is_loss and change.event_id == "killer") <= SOON_S
    check_killer(killer, most)
    assert Counter(row["status"] for row in others) == {"delivered": BATCH - 1}
    assert max(int(str(row["retry_count"])) for row in others) <= 1, "only its first batch was lost with it"
    sent = Counter(published(sink))
    assert sent.pop("killer") == most == len(deaths), "one death for each attempt"
    assert set(sent) == {row["event_id"] for row in others}
    assert max(sent.values()) <= 2


def check_killer(row: Mapping[str, object], most: int) -> None:
    """It is given up, and says why so that a person understands it."""
    assert (row["status"], row["retry_count"]) == ("failed", most)
    assert row["last_error"] == "outbox retry limit exceeded: its worker died or lost its lease each time"
