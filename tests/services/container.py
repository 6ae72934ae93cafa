"""A database server in a container, where a Docker engine runs."""

import shlex
import subprocess
from collections.abc import Mapping

from testcontainers.core.container import DockerContainer

from tests.services.find import free_port, program
from tests.services.mariadb import STARTUP_TIMEOUT_S, answers, flags
from tests.services.wait import wait_for

IMAGE = "mariadb:10.11"


def engine_runs() -> bool:
    """Is there a Docker engine that answers? The client is often installed alone."""
    client = program("docker")
    if client is None:
        return False
    try:
        return subprocess.run([client, "info"], capture_output=True, timeout=5, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


class ContainerServer:
    """MariaDB in a container that ends with the tests. Its port stays the same over restarts."""

    def __init__(self, options: Mapping[str, str | int]) -> None:
        port = free_port()
        self._container = (
            DockerContainer(IMAGE, command=shlex.join(flags(options)))
            .with_env("MARIADB_ALLOW_EMPTY_ROOT_PASSWORD", "1")
            .with_bind_ports(3306, port)
        )
        self._container.start()
        self.url = f"mysql://root@{self._container.get_container_host_ip()}:{port}"
        self._await()

    def _await(self) -> None:
        wait_for(lambda: answers(self.url), STARTUP_TIMEOUT_S, f"the database server in the container at {self.url}")

    def start(self) -> None:
        self._container.get_wrapped_container().start()
        self._await()

    def stop(self) -> None:
        self._container.get_wrapped_container().stop(timeout=30)

    def kill(self) -> None:
        self._container.get_wrapped_container().kill()

    def restart(self) -> None:
        self.stop()
        self.start()

    def remove(self) -> None:
        """End it and free its disk."""
        self._container.stop()
