"""docs/tencent-im.md says what the publisher does."""

import json
import re
from pathlib import Path

import pytest
import yaml

from outboxd import redact
from outboxd.config import schema
from outboxd.config.load import parse
from outboxd.publishers.tencent_im import BACKUP_S
from outboxd.publishers.transfer import MAX_BODY_BYTES
from outboxd.tencent import requests, usersig
from outboxd.tencent.codes import Kind, code_of
from tests.services.tencent_codes import TABLE, numbers
from tests.services.tencent_rooms import im_settings, room_event

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "tencent-im.md").read_text(encoding="utf-8")
PLAIN = " ".join(DOCUMENT.split())
OUTCOMES = {
    "delivered": Kind.SUCCESS,
    "retried, counted": Kind.RETRY,
    "throttled, not counted": Kind.THROTTLED,
    "a minute's rest, not counted": Kind.WAIT,
    "new signature, once": Kind.RESIGN,
    "account imported, once": Kind.IMPORT,
    "held, not counted": Kind.MISCONFIGURED,
    "dead letter": Kind.PERMANENT,
}


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was taken for a secret here must not be masked in the texts of other tests."""
    monkeypatch.setattr(redact, "_known", frozenset())


def documented(cell: str) -> set[int]:
    found: set[int] = set()
    for part in cell.split(", "):
        first, _, last = part.partition("–")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def test_every_code_is_documented_as_it_is_taken() -> None:
    rows = re.findall(r"^\| ([^|]+) \| (\d[\d–, ]*) \| [^|]+ \|$", DOCUMENT, re.MULTILINE)
    codes = {OUTCOMES[outcome]: documented(cell) for outcome, cell in rows}
    assert set(codes) == set(Kind)
    for kind, listed in codes.items():
        assert {code_of(number).kind for number in listed} == {kind}
    for kind_name in TABLE:
        assert set(numbers(kind_name)) <= codes[Kind(kind_name)]


def test_the_configuration_in_the_document_can_be_used(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", DOCUMENT, re.DOTALL)
    for name in re.findall(r"/run/secrets/([a-z_]+)", text):
        (tmp_path / name).write_text("a-secret-key")
    document = yaml.safe_load(text.replace("/run/secrets", str(tmp_path)))
    config = parse(json.dumps({**document, "outbox_worker": {"direct": ["im"]}, "lanes": {"room_outbox": {}}}), {}, "t")
    im = config.publishers["im"]
    assert isinstance(im, schema.TencentIm)
    assert im.hosts[0] == "https://adminapisgp.im.qcloud.com"
    assert set(im.apps) == {"", "acme"}
    assert config.warnings == ()


def test_the_message_in_the_document_has_the_members_of_a_message() -> None:
    (text,) = re.findall(r"```json\n(.*?)```", DOCUMENT, re.DOTALL)
    event = room_event()
    send = requests.errand_of(event, im_settings("http://h"), "administrator", False).send
    assert send is not None
    data = json.loads(json.loads(send.body)["MsgBody"][0]["MsgContent"]["Data"])
    assert list(json.loads(text)) == list(data)


@pytest.mark.parametrize(
    "words",
    [
        f"{requests.MESSAGE_BYTES:,} bytes as they are sent",
        f"1 to {requests.GROUP_ID_BYTES} printable ASCII",
        f"the first {requests.NAME_BYTES} characters",
        f"at most {requests.USER_ID_BYTES} bytes",
        "a day without it" if requests.BAN_S == 86_400 else "another ban",
        f"lives for {usersig.LIFE_S // 3600} hours and is made anew after {usersig.LIFE_S // 7200}",
        "first of all for the next minute" if BACKUP_S == 60 else "another time",
        f"longer than {MAX_BODY_BYTES // 1024} KiB",
        f"`connections` ({schema.TencentIm(name='im', apps={}).connections})",
    ],
)
def test_every_number_in_the_document_is_the_one_in_the_code(words: str) -> None:
    assert words in PLAIN


def test_every_link_leads_somewhere() -> None:
    assert [name for name in re.findall(r"\]\(([^)#]+)", DOCUMENT) if not (ROOT / "docs" / name).exists()] == []
