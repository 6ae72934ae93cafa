"""Who may do what: rules over what a request says of itself and where it comes from. Pure.

- Metrics and health are open. Reads need no token on loopback; everything else needs one with the permission.
- A token that is sent is looked at also where none is needed.
- A listener that reaches beyond loopback serves metrics and health only, until a token is configured.
- No header gives a right: one that tells of a proxy takes the rights of loopback away.
- A browser that was led here by a foreign page (DNS rebinding) names a foreign host. A name must be known; an address
  cannot be rebound, so a listener that is reached from elsewhere takes any: probes and scrapes ask by address.
"""

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from outboxd.config.schema import Admin, Token

OWNER = "admin.socket"
"""Who asks over the Unix socket: its owner, with all permissions."""
NEIGHBOUR = "loopback"
"""Who asks without a token from this machine."""

ANY_TOKEN = "any token"
"""In place of a permission: whoever has a token may."""

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
READING = frozenset({"GET", "HEAD", "OPTIONS"})
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="outboxd"'}

_HOST = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[^\s:\[\]/@]+))(?::[0-9]{1,5})?")


class Refused(Exception):
    """Not done: the answer's status, what is wrong, what to do about it."""

    def __init__(self, status: int, error: str, todo: str, headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.error = error
        self.todo = todo
        self.headers = headers or {}
        super().__init__(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a request says of itself. remote: the address of the other end. is_forwarded: a proxy says that it passed
    it on. changes: what is asked for changes something, by whatever method. The rest are headers, "" where there is
    none.
    """

    method: str = "GET"
    remote: str = ""
    is_forwarded: bool = False
    host: str = ""
    authorization: str = ""
    origin: str = ""
    fetch_site: str = ""
    purpose: str = ""
    changes: bool = False

    @property
    def is_change(self) -> bool:
        return self.changes or self.method not in READING


def is_loopback(address: str) -> bool:
    """127.0.0.0/8 or ::1, also as an IPv6 listener sees the former."""
    found = _address(address)
    return found is not None and found.is_loopback


def reaches_beyond(settings: Admin) -> bool:
    """Can another machine reach the listener? A name may mean any address."""
    return settings.host not in ("", "localhost") and not is_loopback(settings.host)


def is_closed(settings: Admin) -> bool:
    """Does the listener serve metrics and health only?"""
    return reaches_beyond(settings) and not settings.tokens


def check_host(settings: Admin, host: str) -> None:
    """Was this listener meant? Raises Refused."""
    found = _HOST.fullmatch(host)
    name = (found["six"] or found["name"]).lower() if found else ""
    own = _address(settings.host)
    known = {settings.host.lower(), *(known.strip("[]") for known in settings.hosts)}
    if not reaches_beyond(settings) or (own is not None and own.is_unspecified):
        known |= LOCAL_NAMES
    if name in known or (reaches_beyond(settings) and _address(name) is not None):
        return
    raise Refused(
        421, "this listener is not known by the name in the Host header", "add the name to admin.hosts, and restart"
    )


def admit(settings: Admin, asked: Asked, permission: str) -> str:
    """Who asks: the name of a token that has the permission, or NEIGHBOUR. Raises Refused."""
    check_open(settings)
    if not asked.authorization:
        if not asked.is_change and is_loopback(asked.remote) and not asked.is_forwarded:
            return NEIGHBOUR
        what = "a token" if permission == ANY_TOKEN else f"a token with {permission}"
        raise Refused(401, f"this needs {what}", _SEND_ONE, CHALLENGE)
    token = token_of(settings.tokens, asked.authorization)
    if token is None:
        raise Refused(401, "the token is none of those that are configured", _SEND_ONE, CHALLENGE)
    if permission != ANY_TOKEN and not grants(token.permissions, permission):
        raise Refused(403, f"token {token.name} has no permission {permission}", "add it to admin.tokens_file")
    return token.name


_SEND_ONE = "send `Authorization: Bearer TOKEN`, of admin.token_file or admin.tokens_file, or ask over admin.socket"


def check_open(settings: Admin) -> None:
    """Is more served than metrics and health? Raises Refused."""
    if is_closed(settings):
        error = "this address can be reached from other machines and no token is configured"
        todo = "set admin.token_file or admin.tokens_file, or ask over admin.socket; metrics and health are served"
        raise Refused(403, error, todo)


def check_origin(asked: Asked) -> None:
    """Does a change come from a page of another site, or from a browser that only looks ahead? Raises Refused."""
    if asked.fetch_site not in ("", "same-origin", "none") or (
        asked.origin and asked.origin.partition("://")[2].lower() != asked.host.lower()
    ):
        raise Refused(403, "changes are not taken from pages of other sites", "send it from a program")
    if asked.purpose:
        raise Refused(403, "changes are not made ahead of time (prefetch)", "send it when it is meant")


def token_of(tokens: Sequence[Token], authorization: str) -> Token | None:
    """The token in the header, as WSGI has it. As long as it takes does not tell how much of it is right."""
    scheme, _, secret = authorization.partition(" ")
    digest = hashlib.sha256(secret.strip().encode("latin-1", "replace")).hexdigest()
    found = [token for token in tokens if hmac.compare_digest(token.sha256, digest)]
    return found[0] if found and scheme.lower() == "bearer" else None


def grants(patterns: Sequence[str], permission: str) -> bool:
    """Is it among them? `*` is all of them; else each part between colons is a pattern of its own."""
    parts = permission.split(":")
    return any(pattern == "*" or _matches(pattern.split(":"), parts) for pattern in patterns)


def _matches(patterns: Sequence[str], parts: Sequence[str]) -> bool:
    return len(patterns) == len(parts) and all(map(fnmatchcase, parts, patterns))


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
