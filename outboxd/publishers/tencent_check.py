"""What `outboxd check` asks Tencent IM: does it answer, and does it take each app's signature?

Imported only in processes that publish over HTTP: it loads pycurl.
"""

import random
import time

import pycurl

from outboxd.config.schema import Http, TencentApp, TencentIm
from outboxd.errors import PublisherError
from outboxd.publishers.curl_options import make_handle
from outboxd.publishers.transfer import MAX_BODY_BYTES
from outboxd.redact import clip, redact
from outboxd.tencent.codes import code_of, failure_of
from outboxd.tencent.requests import Call, account_check
from outboxd.tencent.rest import HEADERS, Unreadable, read_answer, shown, url_of
from outboxd.tencent.usersig import make

ERROR_CHARACTERS = 300


def try_apps(settings: TencentIm, timeout_s: float) -> str:
    """Ask for every app whether its administrator's account is known (account_check, which changes nothing); of many
    apps only as many as there is time for. The backup host is asked where the main one cannot be reached.

    Raises PublisherError.
    """
    start_s = time.monotonic()
    where = f"publishers.{settings.name}"
    http = Http(name=settings.name, url=settings.hosts[0])
    handle = make_handle(http, timeout_s / len(settings.hosts))
    hosts = list(settings.hosts)
    tried = 0
    try:
        for app_code, app in settings.apps.items():
            if tried and time.monotonic() >= start_s + timeout_s / 2:  # the rest is for a call under way
                break
            try:
                _try_app(handle, hosts, app, start_s + timeout_s)
            except PublisherError as error:
                text = clip(redact(str(error), (app.secret_key,)), ERROR_CHARACTERS)
                raise PublisherError(f"{where}.apps.{app_code!a}: {text}") from error
            tried += 1
    finally:
        handle.close()
    return f"{hosts[0]} takes the signatures of {tried} of {len(settings.apps)} apps (account_check)"


def _try_app(handle: pycurl.Curl, hosts: list[str], app: TencentApp, until_s: float) -> None:
    """Hosts that cannot be reached are taken off the list. Raises PublisherError."""
    call = account_check(app.identifier)
    signature = make(app, time.time())
    while True:
        try:
            status, body = _perform(handle, hosts[0], app, call, signature, until_s)
            break
        except pycurl.error as error:
            if len(hosts) == 1 or handle.getinfo(pycurl.REQUEST_SIZE) > 0:
                raise PublisherError(f"cannot ask {hosts[0]}: {redact(str(error.args[-1]), (signature,))}") from error
            del hosts[0]
    if not 200 <= status < 300:
        raise PublisherError(f"{hosts[0]} answers HTTP {status}: {shown(body, (signature,))}")
    try:
        answer = read_answer(body, (app.secret_key, signature))
    except Unreadable as error:
        raise PublisherError(f"{hosts[0]}: {error}") from error
    text = f"{call.name}: {answer.code} ({code_of(answer.code).meaning or 'refused'}) {answer.info}"
    if failure_of(answer.code, text) is not None:
        raise PublisherError(text)


def _perform(
    handle: pycurl.Curl, host: str, app: TencentApp, call: Call, signature: str, until_s: float
) -> tuple[int, bytes]:
    """Status and body of the answer."""
    received = bytearray()

    def write(data: bytes) -> int | None:
        received.extend(data)
        return -1 if len(received) > MAX_BODY_BYTES else None

    handle.setopt(pycurl.URL, url_of(host, call.command, app, signature, random.getrandbits(32)))
    handle.setopt(pycurl.HTTPHEADER, HEADERS)
    handle.setopt(pycurl.POSTFIELDS, call.body.decode())
    handle.setopt(pycurl.WRITEFUNCTION, write)
    handle.setopt(pycurl.TIMEOUT_MS, max(1, int((until_s - time.monotonic()) * 1000)))
    handle.perform()
    return int(handle.getinfo(pycurl.RESPONSE_CODE)), bytes(received)
