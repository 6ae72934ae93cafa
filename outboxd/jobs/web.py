"""A job's call of an address of the web: GET, or POST with params. One handle, one connection, one answer, one limit.

Imported only in the process that runs jobs: it loads pycurl.
"""

import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec
import pycurl

from outboxd import __version__
from outboxd.errors import JobFailed, PublisherError
from outboxd.jobs.addresses import refusal
from outboxd.jobs.registry import Context
from outboxd.publishers.curl_options import system_authorities
from outboxd.publishers.http_answer import failed
from outboxd.publishers.transfer import failure_of
from outboxd.redact import clip, redact
from outboxd.schedule.records import SHOWN_CHARACTERS, Job

LIMIT_S = 30.0
"""For all of a call: name, connection, TLS, and the answer to its last byte."""
BODY_BYTES = 65_536
"""Of an answer, read. What follows is neither read nor waited for."""


def call_web(job: Job, context: Context, limit_s: float = LIMIT_S) -> str:
    """GET the job's url, or POST its params, which must be JSON; `200 ` and the beginning of what came back.

    Raises JobFailed where anything but a 200 came, where params are no JSON, and where the address may not be called.
    """
    return _Call(job, context, limit_s).run()


class _Call:
    """One call. The addresses that the name stands for are judged one by one, as curl is about to connect: the very
    address that was judged is connected to, whatever the name stands for a moment later."""

    def __init__(self, job: Job, context: Context, limit_s: float) -> None:
        self._limit_s = limit_s
        self._allow_private = context.settings.allow_private_targets
        self._options = list(_options(job, context, limit_s))
        self._body = bytearray()
        self._refused: list[str] = []
        self._sockets: list[socket.socket] = []

    def run(self) -> str:
        handle = pycurl.Curl()
        try:
            return self._perform(handle)
        finally:
            for opened in self._sockets:  # curl has copies
                opened.close()
            _close_aside(handle)

    def _perform(self, handle: pycurl.Curl) -> str:
        try:
            for option, value in self._options:
                handle.setopt(option, value)
            handle.setopt(pycurl.WRITEFUNCTION, self._read)
            handle.setopt(pycurl.OPENSOCKETFUNCTION, self._open_socket)
            handle.perform()
        except pycurl.error as error:
            if len(self._body) < BODY_BYTES:
                raise JobFailed(self._reason(handle, int(error.args[0]), str(error.args[-1]))) from error
        status = int(handle.getinfo(pycurl.RESPONSE_CODE))
        if status != 200:
            raise JobFailed(self._shown(status, _hint(handle, status)))
        return self._shown(status)

    def _read(self, piece: bytes) -> int:
        """Any other number than the piece's length makes curl stop."""
        self._body += piece[: BODY_BYTES - len(self._body)]
        return len(piece) if len(self._body) < BODY_BYTES else -1

    def _open_socket(self, purpose: int, target: tuple[int, int, int, tuple[object, ...]]) -> socket.socket | int:
        family, kind, protocol, address = target
        is_internet = family in (socket.AF_INET, socket.AF_INET6)
        reason = refusal(str(address[0]), self._allow_private) if is_internet else "no address of the internet"
        if reason:
            self._refused.append(reason)
            return int(pycurl.SOCKET_BAD)
        self._sockets.append(socket.socket(family, kind, protocol))
        return self._sockets[-1]

    def _reason(self, handle: pycurl.Curl, code: int, message: str) -> str:
        refused = ", ".join(dict.fromkeys(self._refused))
        if refused and not self._sockets:
            return _short(f"the call was refused: {refused}")
        failure = failure_of(handle, code, message)
        if failure.status >= 300:
            return self._shown(failure.status, _hint(handle, failure.status))
        text = failed(failure, b"", (), frozenset(), 0.0).error
        if code == pycurl.E_OPERATION_TIMEDOUT:
            text = f"{text}; the limit is {self._limit_s:g} s"
        return _short(f"{text} ({refused})" if refused else text)

    def _shown(self, status: int, hint: str = "") -> str:
        text = clip(redact(self._body.decode("utf-8", "replace")), SHOWN_CHARACTERS - len(hint))
        return f"{status} {hint}{text}".rstrip(" ;")


def _close_aside(handle: pycurl.Curl) -> None:
    """While the system still looks a name up, closing waits for it, which no limit of ours ends."""
    try:
        threading.Thread(target=handle.close, name="closing", daemon=True).start()
    except RuntimeError:  # no thread to be had
        handle.close()


def _options(job: Job, context: Context, limit_s: float) -> Iterator[tuple[int, str | int | bytes | list[str]]]:
    """Everything that curl would take from its surroundings is switched off: proxies, .netrc, cookies, redirects."""
    is_tls = _check_url(job.url)
    yield pycurl.URL, job.url
    yield pycurl.NOSIGNAL, 1
    yield pycurl.TIMEOUT_MS, max(1, int(limit_s * 1000))
    yield pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1
    yield pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS
    yield pycurl.FOLLOWLOCATION, 0
    yield pycurl.PROXY, ""
    yield pycurl.NOPROXY, "*"
    yield pycurl.NETRC, 0
    yield pycurl.USERAGENT, f"outboxd/{__version__}"
    headers = [f"X-Outboxd-Job: {job.id}", f"X-Outboxd-Fire-At-Ms: {context.fire_at_ms}"]
    if is_tls:
        yield pycurl.SSL_VERIFYPEER, 1
        yield pycurl.SSL_VERIFYHOST, 2
        yield pycurl.CAINFO, _authorities(job)
    if job.params.strip():
        headers += ["Content-Type: application/json", "Expect:"]
        yield pycurl.POSTFIELDS, _json_body(job.params)
    yield pycurl.HTTPHEADER, headers


def _check_url(url: str) -> bool:
    """Is it https? Raises JobFailed for what cannot be called."""
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or not url.isascii() or not url.isprintable() or " " in url:
        rule = "write http:// or https://, a host and a path, percent-encoded"
        raise JobFailed(_short(f"{url!r} is no usable URL: {rule}"))
    if "@" in parts.netloc:
        raise JobFailed("the URL holds a user or password, which everybody who sees the job would see: take it out")
    return parts.scheme == "https"


def _authorities(job: Job) -> str:
    try:
        return system_authorities(f"job {job.name}")
    except PublisherError as error:
        raise JobFailed(_short(str(error))) from error


def _json_body(params: str) -> bytes:
    """As it stands in the table. Raises JobFailed unless it is JSON."""
    try:
        body = params.encode()
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise JobFailed(_short(f"params are POSTed as JSON and are none: {error}; empty ones make it a GET")) from error
    return body


def _hint(handle: pycurl.Curl, status: int) -> str:
    location = handle.getinfo(pycurl.REDIRECT_URL) if 300 <= status < 400 else None
    if not location:
        return ""
    return f"a redirect to {clip(redact(str(location)), 200)} is not followed; "


def _short(text: str) -> str:
    return clip(redact(text), SHOWN_CHARACTERS)
