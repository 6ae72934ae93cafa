"""curl handles for one HTTP publisher: the options that never change, and a try of the connection alone.

Imported only in processes that publish over HTTP: it loads pycurl.
"""

import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pycurl

from outboxd import __version__
from outboxd.config.schema import Http
from outboxd.errors import PublisherError
from outboxd.redact import redact

CONNECT_SHARE = 2 / 3
"""Of publish_timeout: what name, connection and TLS may take together, so that time is left for the answer. With a
connection that comes later, the time-out would be blamed on the event."""

IDLE_CONNECTION_S = 50
"""An idle connection is not used again after this time: many load balancers drop theirs after 60 s without a word."""

KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S = 30, 10

CA_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",
)
"""Where systems keep the authorities they trust. A curl from a wheel looks where its builder keeps them."""


def make_handle(settings: Http, publish_timeout_s: float) -> pycurl.Curl:
    """A handle with every option set that is the same for all events. Raises PublisherError."""
    where = f"publishers.{settings.name}"
    is_tls = _check_url(settings.url, where)
    handle = pycurl.Curl()
    try:
        for option, value in _options(settings, publish_timeout_s):
            handle.setopt(option, value)
        if is_tls:
            for option, value in _tls_options(settings, where):
                handle.setopt(option, value)
    except (pycurl.error, UnicodeError) as error:
        handle.close()
        raise PublisherError(f"{where}: curl refuses the settings: {redact(str(error))}") from error
    return handle


def _options(settings: Http, publish_timeout_s: float) -> Iterator[tuple[int, str | int]]:
    yield pycurl.URL, settings.url
    yield pycurl.POST, 1
    yield pycurl.NOSIGNAL, 1
    yield pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1
    yield pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS
    yield pycurl.FOLLOWLOCATION, 0
    yield pycurl.PROXY, ""  # not from the environment either
    yield pycurl.NOPROXY, "*"
    yield pycurl.USERAGENT, f"outboxd/{__version__}"
    yield pycurl.CONNECTTIMEOUT_MS, max(1, int(publish_timeout_s * CONNECT_SHARE * 1000))
    yield pycurl.TCP_KEEPALIVE, 1
    yield pycurl.TCP_KEEPIDLE, KEEPALIVE_IDLE_S
    yield pycurl.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S
    yield pycurl.MAXAGE_CONN, IDLE_CONNECTION_S


def _tls_options(settings: Http, where: str) -> Iterator[tuple[int, str | int]]:
    _check_files(settings, where)
    yield pycurl.SSL_VERIFYPEER, 1
    yield pycurl.SSL_VERIFYHOST, 2
    yield pycurl.CAINFO, settings.ca_file or system_authorities(where)
    if settings.client_cert_file:
        yield pycurl.SSLCERT, settings.client_cert_file
        yield pycurl.SSLKEY, settings.client_key_file or settings.client_cert_file


def _check_url(url: str, where: str) -> bool:
    """Is it https? Raises PublisherError for what is no URL of a web server."""
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or not url.isascii() or not url.isprintable() or " " in url:
        shown = redact(url)
        raise PublisherError(f"{where}.url: {shown!r} must be http:// or https://, a host and a path, percent-encoded")
    return parts.scheme == "https"


def _check_files(settings: Http, where: str) -> None:
    """Read them once with the standard library: its errors come at once and name the file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if settings.ca_file:
        try:
            context.load_verify_locations(settings.ca_file)
        except OSError as error:  # ssl.SSLError is one
            raise PublisherError(f"{where}.ca_file: cannot use {settings.ca_file}: {_reason(error)}") from error
    if settings.client_cert_file:
        key_file = settings.client_key_file or settings.client_cert_file
        try:
            # The password keeps a protected key from asking at the terminal.
            context.load_cert_chain(settings.client_cert_file, key_file, password=lambda: "")
        except (OSError, ValueError) as error:
            files = f"{settings.client_cert_file} with {key_file}"
            raise PublisherError(f"{where}.client_cert_file: cannot use {files}: {_reason(error)}") from error
    elif settings.client_key_file:
        raise PublisherError(f"{where}.client_key_file: is of no use without client_cert_file")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"not a valid PEM file, or a key that does not fit ({error.reason or 'no certificate in it'})"
    return getattr(error, "strerror", None) or str(error)


def system_authorities(where: str) -> str:
    """The file with the authorities that this system trusts. Raises PublisherError if there is none."""
    for path in (os.environ.get("SSL_CERT_FILE"), *CA_FILES):
        if path and Path(path).is_file():
            return path
    raise PublisherError(
        f"{where}: no list of trusted authorities on this system; install ca-certificates or set ca_file"
    )


def try_connection(settings: Http, timeout_s: float) -> str:
    """Connect as a publish would, without a request. Returns where to. Raises PublisherError with curl's reason."""
    handle = make_handle(settings, timeout_s)
    try:
        handle.setopt(pycurl.CONNECT_ONLY, 1)
        handle.setopt(pycurl.TIMEOUT_MS, max(1, int(timeout_s * 1000)))
        handle.perform()
        address = f"{handle.getinfo(pycurl.PRIMARY_IP)} port {handle.getinfo(pycurl.PRIMARY_PORT)}"
    except pycurl.error as error:
        what = f"cannot connect to {redact(settings.url)}: {redact(str(error.args[-1]))}"
        raise PublisherError(f"publishers.{settings.name}: {what}") from error
    finally:
        handle.close()
    return f"{redact(settings.url)} connects ({address}{', TLS verified' if settings.url.startswith('https') else ''})"
