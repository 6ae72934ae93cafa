"""The admin role's process: it serves, and beats. Nothing that happens in an answer holds up the relay or its end."""

import time
from collections.abc import Sequence

from outboxd import log, vitals
from outboxd.admin.access import is_closed
from outboxd.admin.app import make_app
from outboxd.admin.exposition import Exposition
from outboxd.admin.sampler import Sampler
from outboxd.admin.serving import serve
from outboxd.admin.sockets import Listeners
from outboxd.admin.source import Source
from outboxd.config.schema import Config, Lane
from outboxd.store import connect

TURN_S = 0.5


def run_admin(
    context: vitals.Context, config: Config, lanes: Sequence[Lane], listeners: Listeners, folder: str | None
) -> int:
    """Serve until the process is ended (ending.py). folder: where workers write their metrics; None: nowhere.

    Requests that are being answered then are cut off: whoever scrapes asks again, and a change is made in transactions.
    """
    sampler = Sampler(lanes, lambda: connect(config.database))
    sampler.start()
    exposition = Exposition(config.node_id, lanes, context.board, folder, sampler.sample)
    source = Source(config, lanes, context.board, sampler, exposition)
    serving = [serve(make_app(source, is_owner=True), listeners.unix)]
    address = None
    if listeners.tcp is not None:
        serving.append(serve(make_app(source, is_owner=False), listeners.tcp))
        host, port = listeners.tcp.getsockname()[:2]
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    log.info(log.ADMIN_LISTENS, address=address, socket=config.admin.socket)
    if is_closed(config.admin):
        log.warning(log.ADMIN_CLOSED, address=address)
    context.slot.set_state(vitals.State.RUNNING)
    while not context.orphaned():
        if not all(thread.is_alive() for thread in serving):
            return vitals.EXIT_CRASH
        context.slot.beat(time.monotonic())
        time.sleep(TURN_S)
    return vitals.EXIT_OK  # the process ends with it, and the listeners close, whatever is being answered
