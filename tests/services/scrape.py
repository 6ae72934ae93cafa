"""What the daemon's admin role tells over its Unix socket: a page of metrics as numbers, or any answer."""

import http.client
import json
import socket
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

WAIT_S = 10.0


class Answer(NamedTuple):
    """An HTTP answer, its body as text."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.text)


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=WAIT_S)
        self._path = path

    def connect(self) -> None:
        """Over the file, not the network."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(WAIT_S)
        self.sock.connect(str(self._path))


def ask(path: Path, what: str, method: str = "GET", body: object = None, **headers: str) -> Answer:
    """One request; body: sent as JSON."""
    connection = _Connection(path)
    try:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            given = {"Content-Type": "application/json", **given}
        connection.request(method, what, None if body is None else json.dumps(body), given)
        answer = connection.getresponse()
        return Answer(answer.status, dict(answer.getheaders()), answer.read().decode())
    finally:
        connection.close()


def scrape(path: Path) -> dict[str, float]:
    """Every sample: `name{label=value,...}` with sorted labels, or `name` alone → its value."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(ask(path, "/metrics").text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def total(samples: dict[str, float], name: str, **labels: str) -> float:
    """The sum of the samples of that name that have these labels."""
    wanted = [f"{label}={value}" for label, value in labels.items()]
    return sum(
        value
        for key, value in samples.items()
        if key.partition("{")[0] == name and all(part in key.partition("{")[2][:-1].split(",") for part in wanted)
    )
