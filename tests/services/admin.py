"""The admin role as its clients see it: a small HTTP client for either listener, and what a daemon needs for them."""

import http.client
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flask import Flask

from outboxd.admin import api, dead, jobs
from outboxd.admin.app import make_app
from outboxd.admin.exposition import Exposition
from outboxd.admin.sampler import Sample, Sampler
from outboxd.admin.source import Source
from outboxd.config.schema import Config
from outboxd.store import connect
from outboxd.supervisor.scoreboard import Scoreboard

LIMIT_S = 20.0
TOKEN = "the-token-of-the-test"
JSON = {"Content-Type": "application/json"}

Address = Path | tuple[str, int]


@dataclass(frozen=True)
class Answer:
    """status 0: the connection was closed without an answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """Of an answer that is an error as all of them are: its text."""
        document = self.json
        assert document.keys() == {"error", "todo"}, document
        assert document["error"], document
        assert document["todo"], document
        return str(document["error"])


def open_connection(address: Address) -> socket.socket:
    """A connection to a listener."""
    family, where = (socket.AF_UNIX, str(address)) if isinstance(address, Path) else (socket.AF_INET, address)
    opened = socket.socket(family, socket.SOCK_STREAM)
    opened.settimeout(LIMIT_S)
    opened.connect(where)
    return opened


def raw(address: Address, request: bytes) -> Answer:
    """Send bytes, and read one answer."""
    with open_connection(address) as connection:
        connection.sendall(request)
        response = http.client.HTTPResponse(connection)
        try:
            response.begin()
            return Answer(response.status, dict(response.getheaders()), response.read())
        except (http.client.BadStatusLine, ConnectionResetError):
            return Answer(0, {}, b"")


class Client:
    """Asks one listener. token: sent with every request."""

    def __init__(self, address: Address, token: str | None = None) -> None:
        self.address = address
        self.token = token

    def ask(
        self, method: str, target: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One request; `headers` may replace the usual ones."""
        host = "localhost" if isinstance(self.address, Path) else "{}:{}".format(*self.address)
        sent = {"Host": host, **({"Authorization": f"Bearer {self.token}"} if self.token else {}), **(headers or {})}
        if body is not None:
            sent.setdefault("Content-Length", str(len(body)))
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items()), "", ""]
        request = "\r\n".join(lines).encode("latin-1") + (body or b"")
        if method == "HEAD":
            return _head(self.address, request)
        return raw(self.address, request)

    def get(self, target: str, **headers: str) -> Answer:
        return self.ask("GET", target, headers=headers)

    def post(self, target: str, document: object, headers: Mapping[str, str] | None = None) -> Answer:
        """Send a document as JSON."""
        return self.ask("POST", target, json.dumps(document).encode(), {**JSON, **(headers or {})})


def _head(address: Address, request: bytes) -> Answer:
    with open_connection(address) as connection:
        connection.sendall(request)
        response = http.client.HTTPResponse(connection, method="HEAD")
        response.begin()
        rest = connection.recv(1)  # nothing follows the headers
        return Answer(response.status, dict(response.getheaders()), rest)


def source_of(config: Config) -> Source:
    """What an application is made from, without a daemon: no lane, no worker, a sampler that does not run."""
    board = Scoreboard(1)
    sampler = Sampler((), lambda: connect(config.database))
    return Source(config, (), board, sampler, Exposition(config.node_id, (), board, None, Sample))


def application(source: Source, is_owner: bool = False) -> Flask:
    """One listener's."""
    app = make_app(source, is_owner)
    assert isinstance(app, Flask)
    return app


def routes(config: Config) -> dict[tuple[str, str], str]:
    """(method, rule) -> permission, or "open", of everything that is served."""
    source = source_of(config)
    entries = (*api.routes(source), *dead.routes(source), *jobs.routes(source))
    permissions = {route.name: route.permission for route in entries}
    return {
        (method, rule.rule): permissions.get(rule.endpoint, "open")
        for rule in application(source).url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
