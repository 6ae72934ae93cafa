"""What may be seen: `redact` hides secrets (G11), `clip` makes any text short, valid and one line.

Redact first, then clip: a secret that was cut in half is no longer recognised.
"""

import base64
import functools
import json
import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

MASK = "***"
SHORTEST_SECRET = 4
"""Shorter values are not masked: they would blot out ordinary text."""

# The whole URL is one match, so that no character is looked at twice, however hostile the text. An apostrophe may stand
# in a password; the characters left out here may not stand in a URL at all.
_URL = re.compile(r"://[^\s\"<>]*")
_PORT = re.compile(r"\d*\W*")
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

_known: frozenset[str] = frozenset()


def register(secrets: Iterable[str]) -> None:
    """Make secrets known to every later `redact` of this process and of the children it forks."""
    global _known
    _known = _known | {secret for secret in secrets if len(secret) >= SHORTEST_SECRET}


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without userinfo and query of URLs and without known secrets: those registered and those given.

    A secret is found as it is and as JSON, repr, URL encoding or base64 writes it. Values under 4 characters stay.
    """
    return _URL.sub(lambda found: _masked_url(found.group()), mask(text, secrets))


def mask(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without known secrets; URLs stay as they are. For text of our own that shows how to write one."""
    pattern = _pattern(_known | frozenset(secrets))
    return text if pattern is None else pattern.sub(MASK, text)


def clip(text_or_bytes: str | bytes, characters: int) -> str:
    """At most so many characters, on one line: control characters are written as escapes, invalid bytes as U+FFFD.

    The result is valid UTF-8, and an escape is never cut in half.
    """
    # One character more than wanted is at most 4 bytes more, so what the cut does to the last one is never seen.
    if isinstance(text_or_bytes, bytes):
        text = text_or_bytes[: 4 * (characters + 1)].decode("utf-8", "replace")
    else:
        text = text_or_bytes
    text = _SURROGATE.sub("\ufffd", text[: max(characters, 0)])
    if _UNSEEN.search(text) is None:
        return text
    pieces = []
    room = characters
    for character in text:
        piece = _visible(character)
        room -= len(piece)
        if room < 0:
            break
        pieces.append(piece)
    return "".join(pieces)


def _visible(character: str) -> str:
    if _UNSEEN.match(character) is None:
        return character
    code = ord(character)
    return _ESCAPES.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def _masked_url(url: str) -> str:
    """From `://` on; a URL inside its path is masked too."""
    address, question_mark, _ = url.partition("?")
    address = "://".join(_masked_authority(part) for part in address.split("://"))
    return address + (f"?{MASK}" if question_mark else "")


def _masked_authority(part: str) -> str:
    authority, slash, path = part.partition("/")
    _, at, host = authority.rpartition("@")
    if at:
        return f"{MASK}@{host}{slash}{path}"
    # What stands where a port should is the beginning of a password that was not percent-encoded.
    if _PORT.fullmatch(authority.rpartition("]")[2].partition(":")[2]) is None:
        _, at, host = part.rpartition("@")
        return f"{MASK}{at}{host if at else slash + path}"
    return part


@functools.lru_cache(maxsize=16)
def _pattern(secrets: frozenset[str]) -> re.Pattern[str] | None:
    forms = {form for secret in secrets if len(secret) >= SHORTEST_SECRET for form in _forms(secret)}
    if not forms:
        return None
    return re.compile("|".join(re.escape(form) for form in sorted(forms, key=lambda form: (-len(form), form))))


def _forms(secret: str) -> set[str]:
    encoded = secret.encode("utf-8", "surrogatepass")
    return {
        secret,
        repr(secret)[1:-1],
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        quote(encoded, safe=""),
        quote(encoded),
        quote_plus(encoded),
        base64.b64encode(encoded).decode("ascii").rstrip("="),
    }
