"""As much of the MySQL protocol as a proxy needs that makes faults: packets, the text of statements, errors. Pure.

A packet is a length (3 bytes), a number that counts from 0 in every exchange (1 byte), and that many bytes.
"""

import re

HEAD_BYTES = 4
COM_QUERY = 0x03
PROTOCOL = 10
CLIENT_SSL = 0x0800

_SQL_STATES = {1205: "HY000", 1213: "40001"}
_TEXT = re.compile(r"'((?:[^'\\]|\\.|'')*)'", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_]+")
_NUMBERS = re.compile(r"-?\b\d[\d.]*\b(?:,\s*-?\d+)*")
_ROWS = re.compile(r"\((?:`\w+` BETWEEN N AND N OR )*`\w+` IN \(N\)\)")


def take_packet(received: bytearray) -> bytes | None:
    """Cut the first complete packet, head and all, off what was received; None if it is not complete yet."""
    if len(received) < HEAD_BYTES:
        return None
    end = HEAD_BYTES + int.from_bytes(received[:3], "little")
    if len(received) < end:
        return None
    packet = bytes(received[:end])
    del received[:end]
    return packet


def packet(number: int, payload: bytes) -> bytes:
    """One packet."""
    return len(payload).to_bytes(3, "little") + bytes([number]) + payload


def query(text: str) -> bytes:
    """What a client sends to have a statement executed."""
    return packet(0, bytes([COM_QUERY]) + text.encode())


def statement_of(sent: bytes) -> str | None:
    """The statement in a client's packet, as `normalised` has it; None if it is anything else."""
    if sent[3] != 0 or sent[HEAD_BYTES : HEAD_BYTES + 1] != bytes([COM_QUERY]):
        return None
    return normalised(sent[HEAD_BYTES + 1 :].decode("utf-8", "replace"))


def normalised(text: str) -> str:
    """A statement without what differs from one time to the next: on one line, N for a number or a list of them, 'S'
    for a text that is not a single word, {rows} for rows that are named by ranges of ids and by single ones."""
    text = _TEXT.sub(lambda found: found[0] if _WORD.fullmatch(found[1]) else "'S'", text)
    return _ROWS.sub("{rows}", " ".join(_NUMBERS.sub("N", text).split()))


def error(number: int, sequence: int) -> bytes:
    """The server's answer that something failed; sequence: its place in the exchange, 0 instead of a greeting."""
    state = f"#{_SQL_STATES.get(number, 'HY000')}" if sequence else ""
    return packet(sequence, b"\xff" + number.to_bytes(2, "little") + f"{state}error {number} of the test".encode())


def without_tls(greeting: bytes) -> bytes:
    """The server's greeting as from one that offers no TLS, so that what follows can be read. Errors stay."""
    if greeting[HEAD_BYTES] != PROTOCOL:
        return greeting
    flags = greeting.index(b"\0", HEAD_BYTES + 1) + 1 + 4 + 8 + 1  # behind version, connection id, salt, filler
    low = int.from_bytes(greeting[flags : flags + 2], "little") & ~CLIENT_SSL
    return greeting[:flags] + low.to_bytes(2, "little") + greeting[flags + 2 :]
