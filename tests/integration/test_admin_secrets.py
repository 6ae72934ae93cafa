"""G11: secrets of the configuration are in nothing that the daemon writes or answers, whatever happens to them."""

import base64
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from outboxd.store.connection import Connection
from tests.services.admin import Client
from tests.services.cli import Cli
from tests.services.daemon import Daemon, write_config
from tests.services.find import free_port
from tests.services.lanes import table_of
from tests.services.mariadb import execute
from tests.services.receiver import Receiver

KEY = base64.b64encode(b"planted-key-of-the-webhook-32-by").decode()


@pytest.fixture
def planted() -> dict[str, str]:
    """What must not be found anywhere, by where it is planted."""
    return {
        "database": f"pw-{secrets.token_hex(8)}",
        "authorization": f"Bearer auth-{secrets.token_hex(8)}",
        "header": f"key-{secrets.token_hex(8)}",
        "query": f"query-{secrets.token_hex(8)}",
        "webhook": f"whsec_{KEY}",
        "token": f"token-{secrets.token_hex(8)}",
    }


@pytest.fixture
def database_url(mysql_url: str, planted: dict[str, str]) -> Iterator[str]:
    """As a user with a password."""
    server, _, name = mysql_url.rpartition("/")
    user = f"planted_{secrets.token_hex(4)}"
    execute(server, f"CREATE USER '{user}'@'%' IDENTIFIED BY '{planted['database']}'")
    execute(server, f"GRANT ALL ON {name}.* TO '{user}'@'%'")
    yield mysql_url.replace("root@", f"{user}:{planted['database']}@")
    execute(server, f"DROP USER '{user}'@'%'")


def forms(secret: str) -> set[str]:
    """As it is, and as it may be written."""
    encoded = base64.b64encode(secret.encode()).decode().rstrip("=")
    return {secret, secret.removeprefix("Bearer "), secret.removeprefix("whsec_"), quote(secret, safe=""), encoded}


def titles_of(pids: list[int]) -> str:
    """What `ps` shows of processes."""
    files = [Path(f"/proc/{pid}/{name}") for pid in pids for name in ("cmdline", "comm", "stat")]
    return "\n".join(file.read_bytes().replace(b"\0", b" ").decode() for file in files)


def test_planted_secrets_are_in_no_answer_log_line_title_or_metric(
    tmp_path: Path, database_url: str, planted: dict[str, str]
) -> None:
    """A receiver repeats what it was sent in its errors, sessions are killed, a stranger tries tokens."""
    for name in ("authorization", "webhook", "token"):
        (tmp_path / name).write_text(planted[name])
    address = ("127.0.0.1", free_port())
    admin = {"listen": "{}:{}".format(*address), "token_file": str(tmp_path / "token")}
    with Receiver() as receiver:
        for name, value in planted.items():
            receiver.answer(event_id=name, status=500, body=f"you sent {value}")
        web = {
            "type": "http",
            "url": f"{receiver.url}?key={planted['query']}",
            "headers": {"X-Api-Key": planted["header"]},
            "authorization_file": str(tmp_path / "authorization"),
            "secret_file": str(tmp_path / "webhook"),
            "breaker": {"enabled": False},
        }
        config = write_config(
            tmp_path / "o.yaml", database_url, {"web": web}, admin=admin, concurrency=1, log_level="debug",
            max_retry_count=1,
        )  # fmt: skip
        with table_of(config) as table, Daemon(tmp_path / "o.yaml", tmp_path / "log") as daemon:
            daemon.admin_pid()
            for name in planted:
                table.fill(1, event_id=name)
            daemon.wait_until(lambda: table.by_status().get("failed") == len(planted), "every answer to be noted")
            written = "".join(answers(Client(address, planted["token"]), planted))
            written += "".join(answers(Client(Path(config.admin.socket)), planted))
            assert written.count("you sent ***") >= len(planted), "the errors do not hold what the receiver repeated"
            for wrong in ("wrong-token-of-a-stranger", planted["database"]):
                written += Client(address, wrong).get("/api/lanes").body.decode()
            cut_sessions(table.connection, config.database.name)
            daemon.wait_for("database_available")
            written += titles_of([daemon.pid, daemon.admin_pid(), *daemon.workers().values()])
            written += numbers(Path(config.admin.socket).parent)
            cli = Cli(tmp_path, tmp_path / "o.yaml")
            for command in (("status",), ("status", "--json"), ("check",), ("dead", "show", "token")):
                done = cli(*command)
                written += done.out + done.err
            daemon.drain(3.0)
            written += daemon.text()
    assert len(written) > 20_000, "hardly anything was looked at"
    assert [name for name, value in planted.items() if any(form in written for form in forms(value))] == []


def answers(client: Client, names: Iterable[str]) -> Iterator[str]:
    """Of every route, good ones and bad ones, with their headers."""
    targets = ["/metrics", "/healthz", "/readyz", "/nothing", "/api/lanes", "/api/events/nobody-has-it"]
    targets += ["/api/dead?error=you", "/api/dead?x=1"]
    targets += [f"/api/{what}/{name}" for name in names for what in ("events", "dead")]
    for answer in [client.get(target) for target in targets]:
        yield f"{dict(answer.headers)} {answer.body.decode()}"
    for what in ("replay", "purge", "kill"):
        for document in ({"event_id": "token", "dry_run": True}, {"dry_run": True}, {"bad": 1}):
            yield client.post(f"/api/dead/{what}", document).body.decode()


def cut_sessions(connection: Connection, database: str) -> None:
    """All but this one."""
    own = connection.query("SELECT CONNECTION_ID()")[0][0]
    for (session,) in connection.query(
        f"SELECT id FROM information_schema.processlist WHERE db = '{database}' AND id <> {own}"
    ):
        connection.execute(f"KILL {int(session)}")


def numbers(folder: Path) -> str:
    """The files of metrics."""
    files = sorted(folder.glob("metrics-*/*.db"))
    assert files
    return "".join(file.read_bytes().decode("latin-1") for file in files)
