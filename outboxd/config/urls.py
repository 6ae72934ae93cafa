"""URLs in the configuration. They may hold secrets, so no text here ever quotes a part of one."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlsplit

from outboxd.config.report import Bad, suggest
from outboxd.config.schema import SSL_MODES

DATABASE_FORMS = "mysql://user@host:3306/name or sqlite:///file.db"
_QUERY_KEYS = ("ssl_mode", "ssl_ca", "ssl_cert", "ssl_key", "unix_socket")
_VISIBLE_ASCII = re.compile(r"[!-~]+")
_HOST = re.compile(r"[A-Za-z0-9_.-]{1,253}|[0-9A-Fa-f:.]{2,45}(%[A-Za-z0-9_.-]+)?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def parse_database(text: str) -> dict[str, Any]:
    """The fields of schema.Database that a URL says, percent-decoded, `password` among them. Raises Bad."""
    scheme = text.partition(":")[0].lower()
    if scheme == "sqlite":
        return _parse_sqlite(text)
    if scheme != "mysql":
        raise Bad(f"unknown scheme, write {DATABASE_FORMS}")
    url, port = _split(text)
    if not url.username:
        raise Bad("names no user, write mysql://user@host:3306/name")
    options = _query(url.query)
    if not url.hostname and "unix_socket" not in options:
        raise Bad("names no host, write mysql://user@host:3306/name")
    name = _decoded(url.path[1:])
    if not name or "/" in name:
        raise Bad("names no database, write mysql://user@host:3306/name")
    return {
        "scheme": "mysql",
        "path": "",
        "host": url.hostname or "",
        "port": port or 3306,
        "user": _decoded(url.username),
        "password": None if url.password is None else _decoded(url.password),
        "name": name,
        **options,
    }


def check_http(text: str) -> SplitResult:
    """The parts of an http or https URL that a request can be made to. Raises Bad."""
    if text.partition(":")[0].lower() not in ("http", "https"):
        raise Bad("unknown scheme, write http://host/path or https://host/path")
    if _VISIBLE_ASCII.fullmatch(text) is None:
        raise Bad("holds spaces or characters beyond ASCII, percent-encode them (a host: punycode)")
    url, _ = _split(text)
    if not url.hostname:
        raise Bad("names no host, write http://host/path or https://host/path")
    return url


def check_redis(text: str) -> None:
    """A URL as redis-py reads it. Raises Bad."""
    scheme = text.partition(":")[0].lower()
    if scheme == "unix":
        if not text.startswith("unix:///"):
            raise Bad("write unix:///path/of/the.sock")
        return
    if scheme not in ("redis", "rediss"):
        raise Bad("unknown scheme, write redis://host:6379/0 or rediss://host:6379/0")
    url, _ = _split(text)
    if not url.hostname:
        raise Bad("names no host, write redis://host:6379/0")
    if re.fullmatch(r"/?\d{0,6}", url.path) is None:
        raise Bad("names no database: it is a number, write redis://host:6379/0")


def with_password(text: str, password: str) -> str:
    """A URL that has no password, with this one. Raises Bad."""
    url = urlsplit(text)
    if url.password is not None:
        raise Bad("the url has a password already, keep one of the two")
    userinfo = f"{url.username or ''}:{quote(password, safe='')}@"
    return url._replace(netloc=userinfo + url.netloc.rpartition("@")[2]).geturl()


def secrets_of(text: str) -> list[str]:
    """What must not be seen of a URL: its password as written and decoded, and values in its query. Never raises."""
    try:
        url = urlsplit(text)
    except ValueError:
        return [text]
    found = []
    userinfo, at, _ = url.netloc.rpartition("@")
    if at:
        user, colon, password = userinfo.partition(":")
        # A user without a password is a token, save in a database's URL.
        found.append(password if colon else user if url.scheme in ("http", "https") else "")
        if colon:
            found.append(f"{unquote(user)}:{unquote(password)}")  # what Basic authentication encodes
    if url.scheme in ("http", "https"):
        # Short values (v=1, debug=true) are ordinary words.
        found += [value for value in (pair.partition("=")[2] for pair in url.query.split("&")) if len(value) >= 8]
    return [form for value in found if value for form in (value, unquote(value))]


def has_userinfo(text: str) -> bool:
    """Whether a URL that passed `check_http` names a user or a password."""
    return "@" in urlsplit(text).netloc


def _parse_sqlite(text: str) -> dict[str, Any]:
    if not text.lower().startswith("sqlite:///"):
        raise Bad("write sqlite:///relative.db or, with four slashes, sqlite:////absolute/path.db")
    if "?" in text or "#" in text:
        raise Bad("takes no options, percent-encode ? as %3F and # as %23 in a file's name")
    path = _decoded(text[len("sqlite:///") :])
    if not path or path.endswith("/"):
        raise Bad("names no file, write sqlite:///outboxd.db")
    if path == ":memory:":
        raise Bad("a database in memory is lost between processes, name a file")
    return {"scheme": "sqlite", "path": path}


def _split(text: str) -> tuple[SplitResult, int | None]:
    hint = "percent-encode / ? # @ : [ ] in the user and the password"
    try:
        url = urlsplit(text)
        port = url.port
        host = url.hostname or ""
    except ValueError:
        raise Bad(f"has a host or port that cannot be read, {hint}") from None
    if "#" in text:
        raise Bad(f"has a fragment (#), {hint}")
    if "@" not in url.netloc and "@" in url.path + url.query and not host:
        raise Bad(f"names no host, {hint}")
    if host and _HOST.fullmatch(host) is None:
        raise Bad(f"has a host that cannot be read, {hint}")
    if port == 0:
        raise Bad("has port 0, give the real one")
    return url, port


def _query(query: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in query.split("&") if query else ():
        key, _, value = pair.partition("=")
        if key not in _QUERY_KEYS:
            raise Bad(f"has an unknown option after the ?, {suggest(key, _QUERY_KEYS)}")
        if key in found:
            raise Bad(f"gives {key} twice, keep one")
        if not value:
            raise Bad(f"gives {key} no value, write {key}=value")
        found[key] = _decoded(value)
    return _checked_ssl(found)


def _checked_ssl(options: Mapping[str, str]) -> dict[str, str]:
    result = dict(options)
    if "ssl_mode" in result:
        result["ssl_mode"] = result["ssl_mode"].upper()
        if result["ssl_mode"] not in SSL_MODES:
            raise Bad(f"has an unknown ssl_mode, {suggest(result['ssl_mode'], SSL_MODES)}")
        if result["ssl_mode"].startswith("VERIFY_") and "ssl_ca" not in result:
            raise Bad("asks to verify the server but names no authority, add &ssl_ca=/path/to/ca.pem")
    if ("ssl_cert" in result) != ("ssl_key" in result):
        raise Bad("needs both ssl_cert and ssl_key, or neither")
    return result


def _decoded(text: str) -> str:
    try:
        decoded = unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise Bad("is percent-encoded, but not as UTF-8") from None
    if _CONTROL.search(decoded):
        raise Bad("holds an encoded control character, remove it")
    return decoded
