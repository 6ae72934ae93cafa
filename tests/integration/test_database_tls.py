"""TLS to the database: asked for, it is there, or nothing is sent."""

from pathlib import Path

import pytest

from outboxd.config.load import parse
from outboxd.config.schema import Database
from outboxd.errors import StoreError, StoreRefused
from outboxd.store import connect
from tests.services.certificates import make_certificates
from tests.services.mariadb import execute, start_mariadb


def database(url: str) -> Database:
    """As the configuration reads it."""
    return parse(f"database: {{url: '{url}'}}\nlanes: {{room_outbox: {{enabled: false}}}}\n", {}, "a test").database


def test_a_server_without_tls_is_refused_where_tls_is_required(mysql_url: str) -> None:
    """The client library would go on in plain text, and the password with it."""
    with pytest.raises(StoreRefused, match="speaks no TLS, which ssl_mode=REQUIRED asks for"):
        connect(database(f"{mysql_url}?ssl_mode=REQUIRED"))
    connect(database(mysql_url)).close()


def test_required_tls_is_used_and_verified_where_that_is_asked_for(tmp_path: Path) -> None:
    """`VERIFY_IDENTITY` takes the right server only."""
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    ours = make_certificates(tmp_path / "ours", "IP:127.0.0.1")
    theirs = make_certificates(tmp_path / "theirs", "IP:127.0.0.1")
    server = start_mariadb(tmp_path / "server", None, ssl_cert=str(ours.server), ssl_key=str(ours.server_key))
    try:
        execute(server.url, "CREATE DATABASE shop")
        named = server.url + "/shop?ssl_mode="
        for mode in ("REQUIRED", f"VERIFY_CA&ssl_ca={ours.authority}", f"VERIFY_IDENTITY&ssl_ca={ours.authority}"):
            connection = connect(database(named + mode))
            assert connection.query("SHOW SESSION STATUS LIKE 'Ssl_cipher'")[0][1]
            connection.close()
        with pytest.raises(StoreError, match=r"(?i)tls|ssl|certificate"):
            connect(database(f"{named}VERIFY_IDENTITY&ssl_ca={theirs.authority}"))
    finally:
        server.stop()
