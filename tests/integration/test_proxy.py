"""The proxy of the fault tests does what it says, seen by a client of the database."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import MySQLdb
import pytest

from tests.services import mysql_wire
from tests.services.mariadb import connect
from tests.services.proxy import Proxy
from tests.services.proxy_rules import BLACKHOLE, CUT, GREETING, LOGIN, RESET, SILENCE, Fault, delay, error
from tests.services.wait import wait_for

LOST = (2006, 2013, 2055)
"""Gone, lost, lost with a system error."""


@pytest.fixture
def proxy(mysql_url: str) -> Iterator[Proxy]:
    with Proxy(mysql_url) as proxy:
        yield proxy


class Client:
    """A session; its own statements time out after a second."""

    def __init__(self, url: str) -> None:
        self.link = connect(url, timeout_s=1)
        self.cursor = self.link.cursor()

    def run(self, sql: str) -> list[tuple[object, ...]]:
        self.cursor.execute(sql)
        return list(self.cursor.fetchall())

    def close(self) -> None:
        with suppress(MySQLdb.Error):  # closed before
            self.link.close()


def failure_of(action: Callable[[], object]) -> int:
    """The number of the error that it ends in."""
    with pytest.raises(MySQLdb.Error) as raised:
        action()
    return int(raised.value.args[0])


@contextmanager
def socket_of(client: Client) -> Iterator[socket.socket]:
    """Its connection past the driver."""
    with socket.socket(fileno=socket.dup(client.link.fileno())) as raw:
        yield raw


def counted(url: str) -> int:
    """Rows of the table, seen without the proxy."""
    with closing(Client(url)) as client:
        return int(str(client.run("SELECT COUNT(*) FROM t")[0][0]))


@pytest.fixture
def client(proxy: Proxy) -> Iterator[Client]:
    """A session through the proxy, with a table t."""
    with closing(Client(proxy.url)) as client:
        client.run("CREATE TABLE t (id INT PRIMARY KEY)")
        yield client


def test_without_faults_everything_passes(proxy: Proxy, client: Client) -> None:
    """Both ways, also what fits in no buffer."""
    assert client.run(f"SELECT LENGTH('{'x' * 1_000_000}')") == [(1_000_000,)]
    assert client.run("SELECT REPEAT('x', 1000000)") == [("x" * 1_000_000,)]
    assert proxy.statements["SELECT REPEAT('x', N)"] == 1
    assert (len(proxy.accepted_s), proxy.connected) == (1, 1)


def test_statements_that_differ_in_values_only_are_the_same() -> None:
    texts = [
        "UPDATE t SET a = 'it''s', b = -5\nWHERE id IN (1,2, 33)",
        "UPDATE t SET a = '\\'7', b = 1 WHERE id IN (4)",
    ]
    assert {mysql_wire.normalised(text) for text in texts} == {"UPDATE t SET a = 'S', b = N WHERE id IN (N)"}
    assert mysql_wire.normalised("SET status = 'delivered'") == "SET status = 'delivered'"


@pytest.mark.parametrize("fault", [CUT, RESET], ids=["fin", "rst"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_statement_is_cut_before_or_after_it_is_executed(
    proxy: Proxy, client: Client, mysql_url: str, fault: Fault, after: bool
) -> None:
    rule = proxy.rule("^commit", fault, after=after, within="INSERT INTO t")
    client.run("START TRANSACTION")
    client.link.commit()  # nothing of the rule is in it
    client.run("START TRANSACTION")
    client.run("INSERT INTO t VALUES (1)")
    assert failure_of(client.link.commit) in LOST
    assert (rule.hits, counted(mysql_url)) == (1, int(after))
    with closing(Client(proxy.url)) as again:
        again.run("INSERT INTO t VALUES (2)")


@pytest.mark.parametrize(("number", "stays"), [(1205, [(1,), (3,)]), (1213, [(3,)])])
def test_an_error_leaves_the_transaction_as_the_server_would(
    proxy: Proxy, client: Client, number: int, stays: list[tuple[int]]
) -> None:
    """A lock wait undoes its statement, a deadlock the transaction."""
    rule = proxy.rule(r"VALUES \(N\)", error(number), every=2)
    client.run("START TRANSACTION")
    client.run("INSERT INTO t VALUES (1)")
    assert failure_of(lambda: client.run("INSERT INTO t VALUES (2)")) == number
    client.run("INSERT INTO t VALUES (3)")
    client.link.commit()
    assert client.run("SELECT id FROM t ORDER BY id") == stays
    assert rule.hits == 1


def test_answers_are_late(proxy: Proxy, client: Client) -> None:
    proxy.rule("DO N", delay(0.3), after=True)
    proxy.delay(0.2, 0.2)
    for least_s in (0.3, 0.2):
        since_s = time.monotonic()
        client.run("DO 1")
        assert time.monotonic() - since_s >= least_s
    proxy.heal()


@pytest.mark.parametrize(("to_server", "to_client"), [(True, True), (True, False), (False, True)])
def test_a_blackhole_keeps_what_is_on_its_way(
    proxy: Proxy, client: Client, mysql_url: str, to_server: bool, to_client: bool
) -> None:
    """Nobody notices anything; healed, it arrives as the kernel would bring it, the end of a client that left too."""
    proxy.blackhole(to_server, to_client)
    sent = mysql_wire.query("INSERT INTO t VALUES (1)")
    with socket_of(client) as raw:
        raw.sendall(sent)
        raw.settimeout(0.2)
        with pytest.raises(TimeoutError):
            raw.recv(100)
        assert counted(mysql_url) == (0 if to_server else 1)
        if to_server and to_client:
            assert failure_of(lambda: Client(proxy.url)) in LOST
        proxy.heal()
        raw.settimeout(5)
        assert raw.recv(100)[4] == 0, "an OK"
    assert counted(mysql_url) == 1
    client.close()
    wait_for(lambda: proxy.connected == 0, 5, "the connections to end")


@pytest.mark.parametrize("fault", [SILENCE, BLACKHOLE])
def test_a_rule_silences_its_connection_or_all(proxy: Proxy, client: Client, fault: Fault) -> None:
    proxy.rule("DO N", fault)
    with closing(Client(proxy.url)) as other, socket_of(client) as raw:
        raw.sendall(mysql_wire.query("DO 1"))
        raw.settimeout(0.2)
        with pytest.raises(TimeoutError):
            raw.recv(100)
        with socket_of(other) as beside:
            beside.sendall(mysql_wire.query("DO 2"))
            beside.settimeout(0.2 if fault is BLACKHOLE else 5)
            if fault is BLACKHOLE:
                with pytest.raises(TimeoutError):
                    beside.recv(100)
            else:
                assert beside.recv(100)
        proxy.heal()


@pytest.mark.parametrize("to_client", [True, False])
def test_one_direction_ends(proxy: Proxy, client: Client, to_client: bool) -> None:
    """Either way the client reads an end: its own, or the server's, which has heard one."""
    proxy.half_close(to_client)
    assert failure_of(lambda: client.run("DO 1")) in LOST


def test_a_connection_is_cut_refused_and_failed_at_login(proxy: Proxy, client: Client) -> None:
    proxy.cut()
    assert failure_of(lambda: client.run("DO 1")) in LOST
    proxy.rule(GREETING, CUT, after=True)
    proxy.rule(GREETING, error(1040), after=True)
    proxy.rule(LOGIN, CUT)
    assert failure_of(lambda: Client(proxy.url)) in LOST
    assert failure_of(lambda: Client(proxy.url)) == 1040
    assert failure_of(lambda: Client(proxy.url)) in LOST
    Client(proxy.url).close()
    proxy.refuse()
    assert failure_of(lambda: Client(proxy.url)) in (2002, 2003)
    proxy.heal()
    Client(proxy.url).close()
