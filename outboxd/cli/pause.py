"""`outboxd pause` and `outboxd resume`: one lane, on all nodes."""

import getpass
import os
import socket

import click

from outboxd.cli import show
from outboxd.cli.shared import Command, Options
from outboxd.store import desk


def who() -> str:
    """Who does this, for others to see: `user@host`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user ID that has no name here, as in a container
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


@click.command(cls=Command)
@click.argument("lane_name", metavar="LANE")
@click.option("--reason", metavar="TEXT", help="Why; shown by `status` and `explain`.")
@click.pass_obj
def pause(options: Options, lane_name: str, reason: str | None) -> None:
    """Pause a lane on all nodes: nothing new is claimed, what is claimed is finished."""
    lane = options.lane(lane_name)
    with options.connection() as connection:
        desk.pause(connection, lane, who() + (f": {reason}" if reason else ""))
    show.line(f"{lane.name} is paused on all nodes; `outboxd resume {lane.name}` lets it go on")


@click.command(cls=Command)
@click.argument("lane_name", metavar="LANE")
@click.pass_obj
def resume(options: Options, lane_name: str) -> None:
    """Let a paused lane go on, on all nodes."""
    lane = options.lane(lane_name)
    with options.connection() as connection:
        desk.resume(connection, lane)
    show.line(f"{lane.name} goes on, within its poll_interval")
