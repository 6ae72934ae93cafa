"""What the commands share: the configuration, a connection, the lane that is meant, the question before a change."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import click

from outboxd.config.load import load
from outboxd.config.schema import Config, Database, Lane
from outboxd.errors import ConfigError, OutboxdError, StoreConflict, StoreError, StoreRefused, StoreUnavailable
from outboxd.explain.lanes import lane_named
from outboxd.store import connect
from outboxd.store.connection import Connection

Decorated = TypeVar("Decorated", bound=Callable[..., object])

EXIT_DONE, EXIT_FAILED, EXIT_USAGE = 0, 1, 2

_NO_ROOM = re.compile(r"\((1040|1203|1226)\)$")
_LOCKED = re.compile(r"\((1205|3572|SQLITE_BUSY\w*|SQLITE_LOCKED\w*)\)$")
_ADVICE_OF_THE_SERVER = "; try restarting transaction"

EVERYWHERE = {
    "--config FILE": "The configuration; default: $OUTBOXD_CONFIG.",
    "--debug": "Show the traceback of an error, too.",
}
"""Options that may stand before or after every command."""


class Command(click.Command):
    """A command whose help names the options that stand everywhere."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        with formatter.section("Everywhere"):
            formatter.write_dl(list(EVERYWHERE.items()))


@dataclass(frozen=True)
class Options:
    """`--config` and `--debug`, wherever they stood. The file is read when a command asks for it."""

    path: str | None = None
    debug: bool = False
    problem: str | None = None

    @staticmethod
    def from_arguments(arguments: Sequence[str]) -> "tuple[Options, list[str]]":
        """The shared options, and the arguments without them. What follows `--` is left alone."""
        rest: list[str] = []
        path: str | None = None
        debug = False
        problem: str | None = None
        words = iter(arguments)
        for word in words:
            if word == "--":
                rest += [word, *words]
            elif word == "--debug":
                debug = True
            elif word == "--config":
                path = next(words, None)
                problem = "--config needs a file" if path is None else problem
            elif word.startswith("--config="):
                path = word.removeprefix("--config=")
            else:
                rest.append(word)
        return Options(path, debug, problem), rest

    @property
    def has_config(self) -> bool:
        """Does anything name a configuration?"""
        return bool(self.path or os.environ.get("OUTBOXD_CONFIG"))

    @cached_property
    def config(self) -> Config:
        """The configuration. Raises ConfigError."""
        path = self.path or os.environ.get("OUTBOXD_CONFIG")
        if not path:
            raise ConfigError(["no configuration: give --config FILE or set OUTBOXD_CONFIG"])
        return load(path, os.environ)

    @property
    def enabled_lanes(self) -> list[Lane]:
        """The lanes whose workers run. Raises ConfigError if there are none."""
        lanes = [lane for lane in self.config.lanes.values() if lane.enabled]
        if not lanes:
            raise ConfigError(["lanes: none is enabled, so there is nothing to do: enable one"])
        return lanes

    def lane(self, name: str | None) -> Lane:
        """The lane of that name; without a name the only one that is enabled, else room_outbox."""
        return lane_named(self.config, name)

    @contextmanager
    def connection(self, database: Database | None = None, *, create: bool = False) -> Iterator[Connection]:
        """A session with the configured database. create: an embedded one that does not exist yet comes to be."""
        database = database or self.config.database
        if database.scheme == "sqlite" and not create and not os.path.exists(database.path):
            raise StoreRefused(f"there is no database {database.path} yet: run `outboxd init-db`, or start outboxd")
        try:
            connection = connect(database)
        except StoreUnavailable as error:
            advice = "is it up, and does database.url name it?"
            if _NO_ROOM.search(str(error)):
                advice = "raise max_connections (or this user's limit), or lower `concurrency`"
            raise StoreUnavailable(f"{error}: {advice}") from error
        try:
            yield connection
        except StoreConflict as error:
            raise StoreConflict(in_words(error)) from error
        finally:
            connection.close()


def in_words(error: StoreError) -> str:
    """The error's text, with what to do about a lock."""
    text = str(error)
    if _LOCKED.search(text):
        return f"{text.replace(_ADVICE_OF_THE_SERVER, '')}: something holds a lock on the table; try again"
    return text


def program() -> str:
    """What to type to run this program once more, as it was called."""
    called = sys.argv[0]
    if os.path.basename(called) == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m outboxd"
    return "outboxd" if called == shutil.which("outboxd") else shlex.quote(called)


def lane_option(command: Decorated) -> Decorated:
    """`--lane`."""
    help_text = "The lane (outbox table). Default: the only one that is enabled, else room_outbox."
    return click.option("--lane", "lane_name", metavar="LANE", help=help_text)(command)


def agree(question: str, yes: bool, advice: str = "add --yes to do it, --dry-run to look only") -> None:
    """Go on only if a person, or --yes, says so. Raises UsageError where nobody can be asked."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Nobody can answer here: {advice}")
    if not click.confirm(question, err=True):
        raise OutboxdError("nothing was changed")
