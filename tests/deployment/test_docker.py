"""etc/docker: an image and a compose file that agree with the program, with Kubernetes' manifests and with each other.

No engine is needed: what a build would do is not tried here.
"""

import fnmatch
import http.client
import re
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer

import pytest

from outboxd import __version__, redact
from outboxd.cli.main import COMMANDS
from outboxd.cli.run import DRAIN_MARGIN_S
from outboxd.config.admin import SOCKET_NAME
from outboxd.config.load import parse
from outboxd.config.schema import Config
from tests.deployment.manifests import DOCKER, ROOT, Document, pods, read, run, tool
from tests.services import children
from tests.services.find import free_port, program, require
from tests.services.wait import wait_for

WAIT_S = 30.0
CONFIGURATION = (ROOT / "etc" / "outbox.docker.yaml").read_text(encoding="utf-8")
IMAGE = f"registry.example.com/outboxd:{__version__}"


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was taken for a secret here must not be masked in the texts of other tests."""
    monkeypatch.setattr(redact, "_known", frozenset())


def stages() -> list[list[tuple[str, str]]]:
    """Of the Dockerfile: instructions and their arguments, stage by stage; before the first one, nothing but ARG."""
    text = re.sub(r"^\s*#.*\n", "", (DOCKER / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    found: list[list[tuple[str, str]]] = [[]]
    for line in lines:
        instruction, _, arguments = line.partition(" ")
        if instruction == "FROM":
            found.append([])
        found[-1].append((instruction, re.sub(r"\s+", " ", arguments.strip())))
    return found[1:]


def last(instruction: str) -> str:
    """What the image's instruction says."""
    return [arguments for name, arguments in stages()[-1] if name == instruction][-1]


def copied() -> list[str]:
    """What is copied out of the repository."""
    arguments = [words for stage in stages() for name, words in stage if name == "COPY" and "--from" not in words]
    return [source for words in arguments for source in words.split()[:-1]]


def services() -> dict[str, Document]:
    found = read(DOCKER / "compose.yaml")["services"]
    assert isinstance(found, dict)
    return found


def configuration(service: str, folder: Path) -> Config:
    """What a service loads, with the environment and the secrets that it gets."""
    one = services()[service]
    environ = {name: value.replace("/run/secrets", str(folder)) for name, value in one["environment"].items()}
    for name in one["secrets"]:
        (folder / name).write_text("placeholder\n")
    return parse(CONFIGURATION, environ, "outbox.docker.yaml")


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    assert run(tool("hadolint"), "--failure-threshold", "style", str(DOCKER / "Dockerfile")) == ""


def test_the_image_runs_as_the_user_that_kubernetes_runs_it_as() -> None:
    context = pods()["deployment.yaml"]["securityContext"]
    uid, gid = last("USER").split(":")
    assert (int(uid), int(gid)) == (context["runAsUser"], context["runAsGroup"])
    made = next(arguments for name, arguments in stages()[-1] if name == "RUN")
    assert f"--uid {uid} --gid {gid}" in made


def test_the_image_starts_the_daemon_itself_with_a_configuration_that_is_in_it() -> None:
    """A shell as PID 1 would not pass SIGTERM on: no drain, and a kill at the end of every stop."""
    assert (last("ENTRYPOINT"), last("CMD"), last("STOPSIGNAL")) == ('["outboxd"]', '["run"]', "SIGTERM")
    assert "run" in COMMANDS
    where = dict(part.split("=", 1) for part in shlex.split(last("ENV")))["OUTBOXD_CONFIG"]
    assert ("COPY", f"etc/outbox.docker.yaml {where}") in stages()[-1]
    (mount,) = (m for m in pods()["deployment.yaml"]["containers"][0]["volumeMounts"] if m["name"] == "config")
    assert f"{mount['mountPath']}/outbox.yaml" == where


def test_the_image_has_the_client_library_and_no_compiler() -> None:
    build, image = (" ".join(words for name, words in stage if name == "RUN") for stage in stages())
    assert "libmariadb-dev" in build
    assert "libmariadb3" in image
    assert [word for word in ("gcc", "-dev", "pip") if word in image] == []


def test_what_is_copied_is_there_and_reaches_the_engine() -> None:
    lines = (DOCKER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    sent = {line[1:] for line in lines if line.startswith("!")}
    assert lines[1] == "*", "all else stays behind, secrets too"
    assert set(copied()) == sent
    assert [source for source in copied() if not (ROOT / source).exists()] == []
    kept = ("etc/docker/secrets/database_password", ".git/config", ".venv/pyvenv.cfg")
    assert [name for name in kept if any(fnmatch.fnmatch(name, f"{pattern}*") for pattern in sent)] == []


def test_the_packages_files_are_all_copied() -> None:
    """What setup.cfg names beside the package must be there when it is installed."""
    named = re.findall(r"(?:file: |license_files = )(\S+)", (ROOT / "setup.cfg").read_text(encoding="utf-8"))
    assert set(named) <= set(copied())


@pytest.mark.parametrize("service", ["init-db", "outboxd"])
def test_the_configuration_can_be_used_with_what_the_service_gets(service: str, tmp_path: Path) -> None:
    config = configuration(service, tmp_path)
    assert (config.database.host, config.database.password) == ("mysql", "placeholder")
    assert config.lanes["room_outbox"].direct == ("webhook",)
    assert config.warnings == ()


def test_the_ports_are_those_that_are_listened_on(tmp_path: Path) -> None:
    config = configuration("outboxd", tmp_path)
    assert config.admin.host == "0.0.0.0"
    assert set(config.admin.hosts) == {"outboxd"} <= services().keys()
    assert last("EXPOSE") == str(config.admin.port)
    assert services()["outboxd"]["ports"] == [f"127.0.0.1:{config.admin.port}:{config.admin.port}"]
    webhook = services()["outboxd"]["environment"]["OUTBOXD_WEBHOOK_URL"]
    assert webhook == f"http://receiver:{services()['receiver']['command'][-1]}/events"


def test_a_stop_leaves_time_to_drain(tmp_path: Path) -> None:
    """G5: ten seconds, an engine's default, are enough for the defaults only."""
    drain_s = max(lane.publish_timeout_s for lane in configuration("outboxd", tmp_path).lanes.values()) + DRAIN_MARGIN_S
    assert int(services()["outboxd"]["stop_grace_period"].removesuffix("s")) >= drain_s + 5


def test_services_wait_for_what_they_need() -> None:
    needed = {
        name: {on: how["condition"] for on, how in one.get("depends_on", {}).items()}
        for name, one in services().items()
    }
    healthy, done = "service_healthy", "service_completed_successfully"
    assert needed == {
        "mysql": {},
        "receiver": {},
        "init-db": {"mysql": healthy},
        "outboxd": {"mysql": healthy, "init-db": done, "receiver": healthy},
    }
    assert all("healthcheck" in services()[name] for name in ("mysql", "receiver"))
    assert (services()["init-db"]["command"], services()["init-db"]["restart"]) == (["init-db"], "no")


def test_every_secret_and_volume_is_declared_and_secrets_are_files() -> None:
    compose = read(DOCKER / "compose.yaml")
    used = {secret for one in services().values() for secret in one.get("secrets", [])}
    assert used == compose["secrets"].keys()
    assert all(one == {"file": f"secrets/{name}"} for name, one in compose["secrets"].items())
    assert "etc/docker/secrets/" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    named = {volume.partition(":")[0] for one in services().values() for volume in one.get("volumes", [])}
    assert {name for name in named if not name.startswith("./")} == compose["volumes"].keys()
    assert all((DOCKER / name).is_file() for name in named if name.startswith("./"))


def test_our_services_may_do_as_little_as_in_kubernetes() -> None:
    for name in ("init-db", "outboxd"):
        one = services()[name]
        assert one["image"] == IMAGE
        assert (one["read_only"], one["cap_drop"], one["security_opt"]) == (True, ["ALL"], ["no-new-privileges:true"])
    uid, gid = last("USER").split(":")
    runtime, temporary = services()["outboxd"]["tmpfs"]
    assert runtime.startswith(f"/run/outboxd:uid={uid},gid={gid},mode=0700,")
    assert temporary.startswith("/tmp:")


def test_compose_takes_the_file(tmp_path: Path) -> None:
    """Compose's own reader, where it is installed; it needs no engine."""
    compose = require("docker-compose", program("docker-compose"), "there is no docker-compose")
    run(compose, "--project-directory", str(tmp_path), "--file", str(DOCKER / "compose.yaml"), "config", "--quiet")


class _Answers(BaseHTTPRequestHandler):
    status = 200
    asked: "list[str]" = []  # noqa: RUF012 - one test's, emptied by it

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(self.status)
        self.end_headers()

    def address_string(self) -> str:
        return "a Unix socket"

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def answers(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Starts a server on a Unix socket that answers everything with the status."""
    servers: list[ThreadingUnixStreamServer] = []

    def start(status: int) -> Path:
        path = tmp_path / SOCKET_NAME
        handler = type("Handler", (_Answers,), {"status": status, "asked": []})
        servers.append(ThreadingUnixStreamServer(str(path), handler))
        threading.Thread(target=servers[-1].serve_forever, kwargs={"poll_interval": 0.05}).start()
        return path

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def healthcheck(path: Path) -> tuple[int, str]:
    command = [sys.executable, str(DOCKER / "healthcheck.py"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize(("status", "exit_status"), [(200, 0), (503, 1), (404, 1)])
def test_the_health_check_believes_what_the_socket_answers(
    answers: Callable[[int], Path], status: int, exit_status: int
) -> None:
    path = answers(status)
    code, told = healthcheck(path)
    assert code == exit_status
    assert told == ("" if status == 200 else f"{path}: /healthz answers {status}\n")


def test_the_health_check_fails_where_nobody_answers(tmp_path: Path) -> None:
    assert healthcheck(tmp_path / "nothing")[0] == 1
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / "deaf"))
        code, told = healthcheck(tmp_path / "deaf")
    assert (code, "refused" in told) == (1, True)


def test_the_health_check_is_in_the_image_and_asks_the_default_socket() -> None:
    source = (DOCKER / "healthcheck.py").read_text(encoding="utf-8")
    assert f'"/run/outboxd/{SOCKET_NAME}"' in source
    path = re.findall(r'"([^"]+)"', last("HEALTHCHECK"))[-1]
    assert ("COPY", f"etc/docker/healthcheck.py {path}") in stages()[-1]


def test_the_receiver_prints_what_arrives_and_ends_when_told(tmp_path: Path) -> None:
    port = free_port()
    output = tmp_path / "receiver.log"
    process = children.start([sys.executable, str(DOCKER / "receiver.py"), str(port)], output)
    try:
        wait_for(lambda: "listening" in output.read_text(), WAIT_S, "the receiver to listen")
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
        client.request("POST", "/events", b'{"room": 42}', {"ce-type": "RoomCreated", "ce-id": "7f0c-1"})
        answer = client.getresponse()
        assert (answer.status, answer.read()) == (204, b"")
        client.request("GET", "/")
        assert client.getresponse().status == 200
        client.close()
        assert 'ce-type=RoomCreated ce-id=7f0c-1 ce-subject=- {"room": 42}\n' in output.read_text()
    finally:
        children.stop(process, timeout_s=10)
    assert process.returncode == 0
