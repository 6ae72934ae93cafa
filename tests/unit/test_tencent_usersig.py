"""UserSig: Tencent's own library makes the same of the same fields, and one is made anew before it ends."""

import time

import pytest
from TLSSigAPIv2 import TLSSigAPIv2

from outboxd.config.schema import TencentApp
from outboxd.tencent.usersig import LIFE_S, Signatures, make
from tests.services.tencent import expected_signature, read_usersig

KEY = "5bd2850fff3ecb11d7c805251c51ee463a25727bddc2385f3fa8bfee1bb93b5e"
NOW_S = 1_700_000_000.9


def app(identifier: str = "administrator", key: str = KEY) -> TencentApp:
    return TencentApp(sdk_app_id=1400000000, identifier=identifier, secret_key=key)


@pytest.mark.parametrize("identifier", ["administrator", "管理员", 'a"b\\c', "a\nb"])
@pytest.mark.parametrize("key", [KEY, "schlüssel"])
def test_a_signature_holds_the_fields_and_what_the_library_signs(identifier: str, key: str) -> None:
    fields = read_usersig(make(app(identifier, key), NOW_S, 3600))
    signature = fields.pop("TLS.sig")
    assert fields == {
        "TLS.ver": "2.0",
        "TLS.identifier": identifier,
        "TLS.sdkappid": 1400000000,
        "TLS.expire": 3600,
        "TLS.time": 1_700_000_000,
    }
    assert signature == expected_signature(key, 1400000000, fields)


def test_the_library_makes_the_same_signature() -> None:
    """Through its public function, which takes the time from the clock: both read within one second."""
    for _ in range(10):
        now_s = time.time()
        theirs = read_usersig(TLSSigAPIv2(1400000000, KEY).gen_sig("administrator", 3600))
        if theirs["TLS.time"] == int(now_s):
            break
    assert read_usersig(make(app(), now_s, 3600)) == theirs


def test_a_signature_needs_no_quoting_in_a_url() -> None:
    """Whatever its bytes are."""
    letters = {letter for number in range(300) for letter in make(app(f"user-{number}"), NOW_S)}
    assert all(letter.isalnum() or letter in "*-_" for letter in letters)
    assert letters >= set("*-_"), "the sample holds every letter that is replaced"


def test_a_signature_is_made_once_and_anew_at_half_of_its_life() -> None:
    """Well before Tencent refuses it, also when this machine's clock is a little slow."""
    signatures = Signatures()
    first = signatures.get(app(), NOW_S)
    assert signatures.get(app(), NOW_S + LIFE_S / 2 - 1) is first
    second = signatures.get(app(), NOW_S + LIFE_S / 2 + 1)
    assert read_usersig(second)["TLS.time"] == int(NOW_S + LIFE_S / 2 + 1)
    assert signatures.get(app(), NOW_S + LIFE_S / 2 + 2) is second


def test_a_clock_that_was_set_back_leads_to_a_new_signature() -> None:
    """G12: one from the future is refused, and would be kept for long."""
    signatures = Signatures()
    signatures.get(app(), NOW_S + 100_000)
    assert read_usersig(signatures.get(app(), NOW_S))["TLS.time"] == int(NOW_S)


def test_each_app_has_a_signature_of_its_own() -> None:
    signatures = Signatures()
    one, two = (signatures.get(app(name), NOW_S) for name in ("a", "b"))
    assert [read_usersig(text)["TLS.identifier"] for text in (one, two)] == ["a", "b"]


def test_a_refused_signature_is_dropped_but_not_the_one_made_since() -> None:
    """Many events are in flight with the old one: each is refused, and only the first refusal needs a new one."""
    signatures = Signatures()
    old = signatures.get(app(), NOW_S)
    signatures.drop(app(), old)
    new = signatures.get(app(), NOW_S + 1)
    assert new != old
    signatures.drop(app(), old)
    assert signatures.get(app(), NOW_S + 2) is new
