"""The section `admin`, and where this machine keeps what lives as long as the daemon: socket and metrics."""

import hashlib
import os
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from outboxd.config import document
from outboxd.config.files import read_regular, read_secret
from outboxd.config.keys import Key, entries, items, matching, read_text, section
from outboxd.config.report import Bad, Place, Reported
from outboxd.config.schema import PERMISSIONS, Admin, Token

MOST_SOCKET_BYTES = 107
"""Of a Unix socket's path: the kernel's limit (unix(7)), less the zero at its end."""
SOCKET_NAME = "outboxd.sock"
_MOST_TOKENS_BYTES = 256 * 1024
_LEAST_TOKEN_CHARACTERS = 16
_LISTEN = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9_.-]+)):(?P<port>[0-9]{1,5})")
_HOST = re.compile(r"[A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]+\]")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PERMISSION = re.compile(r"\*|[a-z*]+(?::[a-z*]+){1,2}", re.IGNORECASE)


def runtime_directory(environ: Mapping[str, str]) -> str:
    """The folder of sockets and metrics: systemd's for the service, else the machine's, else the user's own.

    A command that looks for the daemon finds the same one as the daemon where both are the same user.
    """
    if given := environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]:
        return given
    if os.geteuid() == 0 or os.access("/run/outboxd", os.W_OK | os.X_OK):
        return "/run/outboxd"
    if users := environ.get("XDG_RUNTIME_DIR"):
        return os.path.join(users, "outboxd")
    return f"/tmp/outboxd-{os.geteuid()}"  # made with mode 0700, and refused if it is somebody else's


def read_admin(value: object, place: Place, environ: Mapping[str, str]) -> Admin:
    """The section, with the default socket filled in."""
    defaults = Admin()
    read = section(value, place, ADMIN, defaults).values
    host, port = read.pop("listen", (defaults.host, defaults.port))
    token = read.pop("token_file", None)
    tokens: tuple[Token, ...] = read.pop("tokens_file", None) or ()
    if token is not None:
        if len(token) < _LEAST_TOKEN_CHARACTERS:
            at = place.child("token_file")
            at.problem(f"the token is shorter than {_LEAST_TOKEN_CHARACTERS} characters, make a longer one")
        tokens = (Token("token_file", hashlib.sha256(token.encode()).hexdigest(), ("*",)), *tokens)
    if "socket" not in read:
        read["socket"] = os.path.join(runtime_directory(environ), SOCKET_NAME)
    return Admin(host=host, port=port, tokens=tokens, **read)


def _read_listen(value: object, place: Place) -> tuple[str, int]:
    text = read_text(value, place)
    found = _LISTEN.fullmatch(text)
    if found is None or int(found["port"]) > 65535:
        raise Bad(f'{place.show(text)} is no host:port, write e.g. 127.0.0.1:9464, or "" for no listener')
    return found["six"] or found["host"], int(found["port"])


def _read_socket(value: object, place: Place) -> str:
    path = os.path.abspath(read_text(value, place))
    if len(os.fsencode(path)) > MOST_SOCKET_BYTES:
        raise Bad(f"the path is longer than {MOST_SOCKET_BYTES} bytes, which no socket's may be: choose a shorter one")
    return path


def _read_hosts(value: object, place: Place) -> tuple[str, ...]:
    read = matching(_HOST, "no host name, write it without scheme and port")
    return tuple(host.lower() for host in items(value, place, read))


def _read_tokens(value: object, place: Place) -> tuple[Token, ...]:
    """`- {name: ops, sha256: …, permissions: ["dead:*"]}`."""
    path = read_text(value, place)
    try:
        text = read_regular(path, _MOST_TOKENS_BYTES).decode("utf-8")
        listed = document.read(text, {}, place.report)
    except (UnicodeDecodeError, document.Malformed) as error:
        raise Bad(f"file {place.show(path)}: {error}") from None
    except Bad as bad:
        raise Bad(f"file {place.show(path)}: {bad}") from None
    tokens: tuple[Token, ...] = items(listed, place, _read_token)
    names = [token.name for token in tokens]
    for name in sorted({name for name in names if names.count(name) > 1}):
        place.problem(f"two tokens are named {name}, give each a name of its own")
        raise Reported(tokens)
    return tokens


def _read_token(value: object, place: Place) -> Token:
    pairs: dict[str, Any] = dict(entries(value, place))
    if set(pairs) != {"name", "sha256", "permissions"}:
        raise Bad("expected the keys name, sha256 and permissions, all of them and no others")
    name = read_text(pairs["name"], place.child("name"))
    digest = read_text(pairs["sha256"], place.child("sha256")).lower()
    if _SHA256.fullmatch(digest) is None:
        raise Bad("sha256: expected 64 hexadecimal digits, make them with: printf %s TOKEN | sha256sum")
    permissions = items(pairs["permissions"], place.child("permissions"), _read_permission)
    return Token(name, digest, permissions)


def _read_permission(value: object, place: Place) -> str:
    text = read_text(value, place)
    if _PERMISSION.fullmatch(text) is None:
        raise Bad(f"{place.show(text)} is no permission, write one of {', '.join(PERMISSIONS)}, with * for any part")
    if not any(fnmatchcase(known, text) for known in PERMISSIONS):
        place.warn(f"{place.show(text)} allows nothing here, known are {', '.join(PERMISSIONS)}")
    return text


ADMIN: Mapping[str, Key] = {
    "listen": Key(lambda value, place: ("", 0) if value in (None, "") else _read_listen(value, place)),
    "socket": Key(_read_socket, nullable=True),
    "hosts": Key(_read_hosts),
    "token_file": Key(read_secret, nullable=True),
    "tokens_file": Key(_read_tokens, nullable=True),
}
