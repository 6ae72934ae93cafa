"""What the commands share: the configuration, a connection, the lane that is meant."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from outboxd.config.load import load
from outboxd.config.schema import Config, Lane
from outboxd.errors import ConfigError
from outboxd.store import connect
from outboxd.store.connection import Connection

EXIT_DONE, EXIT_FAILED, EXIT_USAGE = 0, 1, 2


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

    @cached_property
    def config(self) -> Config:
        """The configuration. Raises ConfigError."""
        path = self.path or os.environ.get("OUTBOXD_CONFIG")
        if not path:
            raise ConfigError(["no configuration: give --config FILE or set OUTBOXD_CONFIG"])
        return load(path, os.environ)

    def lane(self, name: str | None) -> Lane:
        """The lane of that name; without a name the only one that is enabled, else room_outbox."""
        lanes = self.config.lanes
        if name is None:
            enabled = [lane for lane in lanes.values() if lane.enabled]
            return enabled[0] if len(enabled) == 1 else self.lane("room_outbox")
        if name not in lanes:
            raise ConfigError([f"there is no lane {name!r}: the configuration has {', '.join(sorted(lanes))}"])
        return lanes[name]

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A session with the configured database."""
        connection = connect(self.config.database)
        try:
            yield connection
        finally:
            connection.close()
