"""One node: `python -m room_service`. And `python -m room_service init`, which makes its tables; `audit`, which checks
that rooms, command log, outbox and wallet fit together.
"""

import os
import signal
import sys
import threading
from importlib.resources import files
from types import FrameType
from urllib.parse import urlsplit

from waitress.server import create_server

from room_service.app import make_app
from room_service.audit import audit
from room_service.cell import Rooms
from room_service.database import Database
from room_service.recover import keep_house
from room_service.rockets import serve_wakeups
from room_service.settings import Misconfigured, read_settings
from room_service.timing import log

THREADS = 8


def init(database_url: str) -> None:
    """Make the tables, unless they are there."""
    text = (files(__package__) / "schema.sql").read_text(encoding="utf-8")
    plain = "\n".join(line.split("--")[0] for line in text.splitlines())
    connection = Database(database_url).connect()
    for statement in filter(str.strip, plain.split(";")):
        connection.cursor().execute(statement)
    connection.close()


def serve() -> None:
    """Until SIGTERM: what is in hand is finished, then the rooms are given to others."""
    settings = read_settings(os.environ)
    rooms = Rooms(settings)
    address = urlsplit(settings.url)
    server = create_server(
        make_app(rooms), host=address.hostname, port=address.port, threads=THREADS, clear_untrusted_proxy_headers=True
    )
    ending = threading.Event()

    def end(_signum: int, _frame: FrameType | None) -> None:
        ending.set()
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    helpers = [threading.Thread(target=work, args=(rooms, ending), daemon=True) for work in (serve_wakeups, keep_house)]
    for helper in helpers:
        helper.start()
    log("node_started", settings.node, url=settings.url)
    try:
        server.run()  # SystemExit ends it, after the requests in hand
    finally:
        ending.set()
        server.close()
        for helper in helpers:
            helper.join(5)
        rooms.close()
        log("node_ended", settings.node)


def main(arguments: list[str]) -> int:
    """The exit status."""
    try:
        match arguments:
            case []:
                serve()
            case ["init"]:
                init(os.environ["ROOM_DATABASE_URL"])
            case ["audit"]:
                problems = audit(Database(os.environ["ROOM_DATABASE_URL"]))
                print("\n".join(problems) or "rooms, command log, outbox and wallet agree")
                return int(bool(problems))
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except Misconfigured as error:
        print(f"room_service: {error}", file=sys.stderr)
        return 2
    except KeyError as error:
        print(f"room_service: not set: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
