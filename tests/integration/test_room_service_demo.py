"""`make example`, without make: the whole of it comes to an end by itself, and says what is missing."""

import os
import subprocess
import sys
from pathlib import Path

from tests.services.daemon import ROOT
from tests.services.mariadb import Server, connect
from tests.services.redis_server import RedisServer, client
from tests.services.room_service import PATH

DEMO = [sys.executable, "-m", "room_service.demo"]


def test_the_example_ends_well(mysql_server: Server, own_redis: RedisServer, tmp_path: Path) -> None:
    """Events arrive, every room is what they make of it, and nothing is left behind."""
    mysql_server.start()
    given = {"EXAMPLE_MYSQL_URL": mysql_server.url, "EXAMPLE_REDIS_URL": own_redis.url, "TMPDIR": str(tmp_path)}
    done = run({**os.environ, **given})
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if "room-0    1  RoomCreated" in line]
    assert lines[-1].endswith("each is what its delivered events make of it")
    assert "0 unanswered" in done.stdout
    with connect(mysql_server.url).cursor() as cursor:
        cursor.execute("SHOW DATABASES LIKE 'room\\_example\\_%'")
        assert cursor.fetchall() == ()
    assert client(own_redis.url).dbsize() == 0
    assert list(tmp_path.iterdir()) == []


def test_the_example_says_what_is_missing(tmp_path: Path) -> None:
    """One line, with what to do, and nothing is started."""
    given = {"EXAMPLE_MYSQL_URL": "mysql://root@127.0.0.1:1", "PATH": str(tmp_path)}  # where no redis-server is
    done = run({**os.environ, **given})
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("example: there is no Redis: install redis-server, or set EXAMPLE_REDIS_URL=")


def run(environ: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """The demo, to its end."""
    environ = {**environ, "PYTHONPATH": PATH}
    return subprocess.run(DEMO, capture_output=True, text=True, env=environ, cwd=ROOT, timeout=240, check=False)
