"""Files that the configuration names. Their content is never part of a problem."""

import base64
import binascii
import os
import re
import stat
from typing import BinaryIO

from outboxd.config.keys import Key, read_text
from outboxd.config.report import Bad, Place

_MOST_SECRET_BYTES = 64 * 1024
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_KEY_PREFIX = "whsec_"


def open_regular(path: str) -> BinaryIO:
    """A regular file, open for reading. Raises Bad; never waits (for a pipe's other end)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise Bad("no such file, check the path") from None
    except (OSError, ValueError) as error:
        raise Bad(f"cannot be opened ({_reason(error)}), check its path and permissions") from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise Bad("is a directory, name a file in it" if stat.S_ISDIR(mode) else "is no regular file, name one")
    return open(descriptor, "rb")


def read_regular(path: str, most_bytes: int) -> bytes:
    """The content of a regular file of at most so many bytes. Raises Bad."""
    with open_regular(path) as file:
        try:
            content = file.read(most_bytes + 1)
        except OSError as error:
            raise Bad(f"cannot be read ({_reason(error)}), check the disk it is on") from None
    if len(content) > most_bytes:
        raise Bad(f"is larger than {most_bytes // 1024} KiB, name the right file")
    return content


def read_secret(path: object, place: Place) -> str:
    """The one line of a secret's file, without the newline at its end. It becomes a known secret."""
    name = read_text(path, place)
    try:
        content = read_regular(name, _MOST_SECRET_BYTES)
    except Bad as bad:
        raise Bad(f"file {place.show(name)}: {bad}") from None
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise Bad(f"file {place.show(name)}: is not UTF-8") from None
    text = text.removesuffix("\n").removesuffix("\r")
    place.report.secrets.append(text)
    if not text:
        raise Bad(f"file {place.show(name)}: is empty, write the secret into it")
    if _CONTROL.search(text):
        raise Bad(f"file {place.show(name)}: holds more than one line of text, write the secret alone into it")
    return text


def read_webhook_key(path: object, place: Place) -> bytes:
    """A Standard Webhooks secret, decoded: `whsec_` and base64, or base64 alone, of 24 to 64 bytes."""
    text = read_secret(path, place).strip()
    encoded = text.removeprefix(_KEY_PREFIX)
    place.report.secrets.extend((text, encoded))
    try:
        key = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise Bad(f"the file holds no Standard Webhooks secret, which is {_KEY_PREFIX} and base64") from None
    if not 24 <= len(key) <= 64:
        raise Bad("the file holds a Standard Webhooks secret of a wrong length, make one of 24 to 64 bytes")
    return key


def read_path(path: object, place: Place) -> str:
    """The name of a file that exists and may be read; the content is the client library's business."""
    name = read_text(path, place)
    try:
        open_regular(name).close()
    except Bad as bad:
        raise Bad(f"file {place.show(name)}: {bad}") from None
    return name


def secret_file() -> Key:
    return Key(read_secret, nullable=True)


def existing_file() -> Key:
    return Key(read_path, nullable=True)


def _reason(error: Exception) -> str:
    strerror = getattr(error, "strerror", None)
    return str(strerror).lower() if strerror else "not a name a file can have"
