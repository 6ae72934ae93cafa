"""The admin role's process: it serves, and beats. Nothing that happens in an answer holds up the relay or its end."""

import select
import socket
import threading
import time
from collections.abc import Sequence
from wsgiref.types import WSGIApplication

from waitress.server import create_server

from outboxd import log, vitals
from outboxd.admin.app import Source, make_app
from outboxd.admin.exposition import Exposition
from outboxd.admin.sampler import Sampler
from outboxd.admin.sockets import Listeners
from outboxd.config.schema import Config, Lane
from outboxd.store import connect

TURN_S = 0.5
THREADS = 4
MOST_CONNECTIONS = 500
"""At once, of each listener; others wait in the kernel's queue."""
SILENT_S = 15
"""A client that says nothing for so long is cut off."""
MOST_BODY_BYTES = 256 * 1024


def run_admin(
    context: vitals.Context, config: Config, lanes: Sequence[Lane], listeners: Listeners, folder: str | None
) -> int:
    """Serve until told to stop; the exit status. folder: where workers write their metrics; None: nowhere.

    Requests that are being answered then are cut off: whoever scrapes asks again, and a change is one transaction.
    """
    sampler = Sampler(lanes, lambda: connect(config.database))
    sampler.start()
    exposition = Exposition(config.node_id, lanes, context.board, folder, sampler.sample)
    source = Source(config, lanes, context.board, sampler, exposition)
    serving = [_serve(make_app(source, is_owner=True), listeners.unix)]
    if listeners.tcp is not None:
        serving.append(_serve(make_app(source, is_owner=False), listeners.tcp))
        host, port = listeners.tcp.getsockname()[:2]
        log.info(log.ADMIN_LISTENS, address=f"{host}:{port}", socket=config.admin.socket)
    poll = select.poll()
    poll.register(context.stop.fileno(), select.POLLIN)
    context.slot.set_state(vitals.State.RUNNING)
    while not context.stop.requested and not context.orphaned():
        if not all(thread.is_alive() for thread in serving):
            return vitals.EXIT_CRASH
        context.slot.beat(time.monotonic())
        poll.poll(TURN_S * 1000)
    return vitals.EXIT_OK  # the process ends with it, and the listeners close, whatever is being answered


def _serve(app: WSGIApplication, listener: socket.socket) -> threading.Thread:
    server = create_server(
        app,
        sockets=[listener],
        threads=THREADS,
        connection_limit=MOST_CONNECTIONS,
        cleanup_interval=SILENT_S // 3,
        channel_timeout=SILENT_S,
        max_request_body_size=MOST_BODY_BYTES,
        asyncore_use_poll=True,  # select() knows no descriptor above 1023
        clear_untrusted_proxy_headers=True,
        ident=None,
    )
    thread = threading.Thread(target=server.run, name=f"serve-{listener.family.name}", daemon=True)
    thread.start()
    return thread
