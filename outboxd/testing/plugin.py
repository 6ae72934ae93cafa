"""Fixtures for pytest, for those who ask for them in their conftest.py:

    pytest_plugins = ["outboxd.testing.plugin"]

    @pytest.fixture
    def outboxd_url() -> str:
        return "mysql://root@127.0.0.1:3306/test"

Then a test that takes `outboxd_relay` relays what the application has committed: `outboxd_relay(receiver)`.
"""

import pytest

from outboxd.testing.relaying import Relay, make_tables


@pytest.fixture
def outboxd_url() -> str:
    """`database.url` of a database for tests: yours takes this one's place."""
    pytest.fail("define a fixture outboxd_url in your conftest.py: the URL of the database of your tests")


@pytest.fixture
def outboxd_lane() -> str:
    """The lane's table: yours may take this one's place."""
    return "room_outbox"


@pytest.fixture
def outboxd_relay(outboxd_url: str, outboxd_lane: str) -> Relay:
    """The lane, its tables made if they were not there."""
    make_tables(outboxd_url, outboxd_lane)
    return Relay(outboxd_url, outboxd_lane)
