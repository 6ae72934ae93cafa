"""What the documents give to copy works as it stands."""

import re
import shlex
from pathlib import Path

import pytest

from outboxd.config.load import load
from tests.services.cli import Cli
from tests.services.daemon import ROOT, write_config
from tests.services.lanes import table_of
from tests.services.mariadb import execute

DOCUMENT = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
PUBLISHERS = {"null": {"type": "null"}}
DAY_MS = 86_400_000


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "outbox.yaml"


@pytest.fixture
def cli(tmp_path: Path, config: Path, mysql_url: str) -> Cli:
    write_config(config, mysql_url, PUBLISHERS)
    made = Cli(tmp_path, config)
    made("init-db").ok()
    return made


def examples(title: str, language: str) -> list[str]:
    """What the document gives to copy under a heading."""
    section = DOCUMENT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    found = re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)
    assert found
    return found


def test_what_producers_are_told_to_write_is_relayed(cli: Cli, mysql_url: str) -> None:
    """Copied as it stands. The delayed one waits for its time."""
    execute(mysql_url, *examples("For producers", "sql"))
    cli("run", "--until-empty")
    ids = ("7f0c-1", "7f0c-2", "7f0c-3", "7f0c-4")
    stories = [event for name in ids for event in cli("explain", name, "--json").json["events"]]
    assert [story["state"] for story in stories] == ["delivered"] * 4 + ["delayed"]
    assert stories[1]["event"]["app_code"] == "shop"
    assert 590_000 < stories[-1]["next_try_ms"] - stories[-1]["event"]["created_at_ms"] <= 601_000


def test_the_readme_s_example_can_be_copied(cli: Cli, mysql_url: str) -> None:
    """It is the first thing that is tried."""
    execute(mysql_url, *re.findall(r"```sql\n(.*?)```", README, re.DOTALL))
    (typed,) = re.findall(r"^outboxd --config outbox.yaml (explain .*?)  ", README, re.MULTILINE)
    assert "RoomCreated" in cli(*typed.split()).ok()


def test_the_clean_up_that_is_given_to_copy_deletes_old_delivered_rows_only(cli: Cli, mysql_url: str) -> None:
    """The first line only looks; what is not delivered, or was only just, stays."""
    (lines,) = examples("Delivered rows", "sh")
    look, prune = (shlex.split(line)[1:] for line in lines.splitlines())
    assert cli.config is not None
    with table_of(load(str(cli.config), {})) as table:
        now = table.now_ms()
        table.fill(7, status="delivered", delivered_at_ms=now - 8 * DAY_MS)
        table.fill(3, status="delivered", delivered_at_ms=now - 6 * DAY_MS)
        table.fill(1, status="failed", updated_at_ms=now - 8 * DAY_MS)
        table.fill(1, created_at_ms=now - 8 * DAY_MS)
        assert "would delete 7 rows of room_outbox delivered more than 7 d ago" in cli(*look).ok()
        assert table.by_status() == {"delivered": 10, "failed": 1, "pending": 1}
        assert "deleted 7 rows of room_outbox" in cli(*prune).ok()
        assert table.by_status() == {"delivered": 3, "failed": 1, "pending": 1}
