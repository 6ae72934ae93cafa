"""Daemons whose admin role listens somewhere, with tokens that may do this or that."""

import hashlib
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import yaml

from outboxd.config.schema import PERMISSIONS, Config
from tests.services.admin import TOKEN, Client
from tests.services.daemon import Daemon, write_config
from tests.services.find import free_port, outside_address, require
from tests.services.lanes import table_of

PUBLISHERS = {"bus": {"type": "null"}}
DAY_MS = 86_400_000


@dataclass(frozen=True)
class Place:
    """A running daemon. near: its port on loopback. far: the same on an address that others reach."""

    daemon: Daemon
    config: Config
    port: int

    @property
    def near(self) -> Client:
        return Client(("127.0.0.1", self.port))

    @property
    def far(self) -> Client:
        reason = "this machine has loopback addresses only"
        return Client((require("outside-address", outside_address(), reason), self.port))

    @property
    def owner(self) -> Client:
        return Client(Path(self.config.admin.socket))


def secret_without(permission: str) -> str:
    """A token that may do everything else."""
    return f"all-but-{permission}-of-the-test"


def start_place(stack: ExitStack, folder: Path, listen: str, *, with_tokens: bool = True) -> Place:
    """A daemon with one event, e1, that is delayed; it ends with the stack."""
    folder.mkdir()
    port = free_port()
    admin: dict[str, object] = {"listen": f"{listen}:{port}", "hosts": ["relay.example"]}
    if with_tokens:
        (folder / "token").write_text(TOKEN)
        tokens = [
            {
                "name": f"all-but-{missing}",
                "sha256": hashlib.sha256(secret_without(missing).encode()).hexdigest(),
                "permissions": [permission for permission in PERMISSIONS if permission != missing],
            }
            for missing in PERMISSIONS
        ]
        (folder / "tokens.yaml").write_text(yaml.safe_dump(tokens))
        admin |= {"token_file": str(folder / "token"), "tokens_file": str(folder / "tokens.yaml")}
    config = write_config(folder / "o.yaml", f"sqlite:///{folder}/o.db", PUBLISHERS, admin=admin, concurrency=1)
    table = stack.enter_context(table_of(config))
    table.fill(1, event_id="e1", next_retry_at_ms=table.now_ms() + DAY_MS)
    return Place(stack.enter_context(Daemon(folder / "o.yaml", folder / "log")), config, port)
