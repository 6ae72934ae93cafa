"""What MySQL answers to commands on a bad day, told with what to do about it."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from MySQLdb import OperationalError

from tests.services.cli import Cli
from tests.services.daemon import write_config
from tests.services.mariadb import Server, connect

TOO_MANY = 1040
PUBLISHERS = {"null": {"type": "null"}}


def takes_one_more(url: str, held: ExitStack) -> bool:
    try:
        held.enter_context(closing(connect(url)))
    except OperationalError as refusal:
        if refusal.args[0] == TOO_MANY:
            return False
        raise
    return True


@pytest.fixture
def full_server(mysql_server: Server, mysql_url: str) -> Iterator[None]:
    """Every connection that it has room for is taken, the administrator's own too."""
    with closing(connect(mysql_url)) as root, ExitStack() as held:
        cursor = root.cursor()
        cursor.execute("SELECT @@max_connections")
        ((usual,),) = cursor.fetchall()
        cursor.execute("SET GLOBAL max_connections = 10")
        try:
            while takes_one_more(mysql_url, held):
                pass
            yield
        finally:
            cursor.execute(f"SET GLOBAL max_connections = {usual}")


def test_the_check_changes_nothing_and_honours_the_columns(tmp_path: Path, mysql_url: str) -> None:
    """A table of the user's own has other names."""
    config = tmp_path / "outbox.yaml"
    columns = {"lock_until_ms": "leased_to", "id": "number"}
    write_config(config, mysql_url, PUBLISHERS, columns=columns)
    cli = Cli(tmp_path, config)
    cli("init-db").ok()
    assert "and can be written" in cli("check").ok()


@pytest.mark.usefixtures("full_server")
def test_a_server_without_room_for_a_connection_says_what_to_raise(tmp_path: Path, mysql_url: str) -> None:
    """It is up, and database.url names it: advice about those would lead astray."""
    config = tmp_path / "outbox.yaml"
    write_config(config, mysql_url, PUBLISHERS)
    said = Cli(tmp_path, config)("status").failed()
    assert "(1040): raise max_connections" in said
    assert "lower `concurrency`" in said
    assert "is it up" not in said


def test_a_lock_on_the_table_is_told_as_one(tmp_path: Path, mysql_url: str) -> None:
    """The server's own advice is for whoever can restart a transaction."""
    config = tmp_path / "outbox.yaml"
    write_config(config, mysql_url, PUBLISHERS, database={"statement_timeout": "2s"})
    cli = Cli(tmp_path, config)
    cli("init-db").ok()
    with closing(connect(mysql_url)) as other:
        other.cursor().execute("LOCK TABLES room_outbox WRITE")
        said = cli("status").failed()
        checked = cli("check").out
    for text in (said, checked):
        assert "Lock wait timeout exceeded (1205): something holds a lock on the table; try again" in text
        assert "restarting transaction" not in text
