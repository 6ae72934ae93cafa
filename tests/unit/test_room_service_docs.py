"""The example's README tells of what is there."""

import re

from room_service.domain import AnyCommand
from room_service.settings import FAILPOINTS
from room_service.timing import STEPS, Timing
from tests.services.room_service import EXAMPLE

README = (EXAMPLE / "README.md").read_text(encoding="utf-8")


def test_every_variable_is_documented_and_no_other() -> None:
    code = "".join((EXAMPLE / name).read_text(encoding="utf-8") for name in ("settings.py", "__main__.py"))
    named = {f"ROOM_{name}" for name in ("NODE", "URL", "DATABASE_URL", "REDIS_URL")}  # read together
    known = named | set(re.findall(r'"(ROOM_[A-Z_]+)"', code))
    rows = "".join(re.findall(r"^\| (`ROOM_.*)$", README, re.MULTILINE))
    assert set(re.findall(r"`(ROOM_[A-Z_]+)`", rows)) == known


def test_every_file_is_listed() -> None:
    listed = set(re.findall(r"`([a-z_]+\.(?:py|sql|yaml))`", README))
    there = {path.name for path in EXAMPLE.iterdir() if path.is_file()} - {"README.md", "__init__.py"}
    assert listed == there


def test_the_line_for_a_command_has_every_step() -> None:
    (line,) = re.findall(r"^```json\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    assert set(Timing().fields()) == {f"{step}_ms" for step in (*STEPS, "total")}
    assert [name for name in Timing().fields() if f'"{name}"' not in line] == []


def test_the_failpoint_that_is_named_exists() -> None:
    (command, place), *_ = re.findall(r"`([a-z_]+):([a-z_]+)` kills", README)
    assert place in FAILPOINTS
    assert command in {kind.__struct_config__.tag for kind in AnyCommand.__args__}
