"""A private nginx that answers every request with 204: the fastest receiver there is."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.services import children
from tests.services.find import free_port, program, require
from tests.services.wait import wait_for

CONFIGURATION = """
{user}
daemon off;
worker_processes 1;
pid {directory}/nginx.pid;
error_log {directory}/error.log warn;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    client_max_body_size 64m;
    keepalive_requests 1000000;
    server {{
        listen 127.0.0.1:{port};
        location / {{ return 204; }}
    }}
}}
"""


@dataclass(frozen=True, slots=True)
class Nginx:
    """A running server. `url` takes POST on any path."""

    url: str
    process: subprocess.Popen[bytes]

    def stop(self) -> None:
        """End it at once, with requests still open."""
        children.stop(self.process, signal.SIGTERM, timeout_s=10)


def start_nginx(directory: Path, port: int | None = None, binary: str | None = None) -> Nginx:
    """Start one with all its files in `directory`, on a free port unless one is given."""
    binary = binary or program("nginx") or "nginx"
    port = port or free_port()
    # Started by root, its worker would be another user, who may not read the directory.
    user = "user root;" if os.geteuid() == 0 else ""
    configuration = directory / "nginx.conf"
    configuration.write_text(CONFIGURATION.format(user=user, directory=directory, port=port))
    log = directory / "error.log"
    process = children.start([binary, "-e", str(log), "-p", str(directory), "-c", str(configuration)], log)

    def answers() -> bool:
        assert process.poll() is None, f"nginx ended with {process.returncode}:\n{children.tail(log)}"
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    wait_for(answers, 10, "nginx to listen")
    return Nginx(f"http://127.0.0.1:{port}/", process)


@pytest.fixture(scope="session")
def nginx() -> Iterator[Nginx]:
    """One for the whole run."""
    binary = require("nginx", program("nginx"), "nginx is not installed")
    directory = Path(tempfile.mkdtemp(prefix="outboxd-nginx-"))
    server = start_nginx(directory, binary=binary)
    yield server
    server.stop()
    shutil.rmtree(directory)
