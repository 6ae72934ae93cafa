"""`outboxd`: the commands, the options they share, and what becomes of an error.

Exit statuses: 0 done, 1 failed, 2 usage or configuration. An error is one line on standard error; `--debug` adds the
traceback.
"""

import errno
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

import click

from outboxd import __version__
from outboxd.cli.shared import EXIT_DONE, EXIT_FAILED, EXIT_USAGE, Options
from outboxd.errors import ConfigError, OutboxdError
from outboxd.redact import clip, redact

LONGEST_LINE = 4000

_STREAM_FAILED = frozenset({errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC, errno.ENXIO})
"""What an output that is closed, full or gone says. Errors about files that have a name are not meant."""

COMMANDS = {
    "run": ("outboxd.cli.run", "Run the daemon (also: outboxd --config FILE)."),
    "init-db": ("outboxd.cli.init_db", "Create or migrate the tables."),
    "check": ("outboxd.cli.check", "Check configuration, database, tables and publishers."),
    "demo": ("outboxd.cli.demo", "See it work: sample events, 4 workers, a summary."),
    "enqueue": ("outboxd.cli.enqueue", "Put one event into a lane."),
    "ring": ("outboxd.cli.ring", "Ring a lane's doorbell: its workers look at once."),
    "status": ("outboxd.cli.status", "Show lanes, ages and what is stuck."),
    "explain": ("outboxd.cli.explain", "Tell where an event is and why it is not delivered."),
    "dead": ("outboxd.cli.dead", "List, show, replay, purge dead letters; kill an event."),
    "prune": ("outboxd.cli.prune", "Delete what was delivered long ago."),
    "jobs": ("outboxd.cli.jobs", "List, change, start, stop and run scheduled jobs."),
    "pause": ("outboxd.cli.pause", "Pause a lane on all nodes."),
    "resume": ("outboxd.cli.pause", "Let a paused lane go on."),
}
"""Where each command is. Imported when it is asked for, so that `outboxd --help` loads no client library."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = getattr(import_module(COMMANDS[cmd_name][0]), cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=_Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="outboxd")
@click.pass_context
def cli(ctx: click.Context) -> int:
    """Relay a transactional outbox in MySQL to the outside world.

    \b
    outboxd --config etc/outbox.yaml          run the daemon
    outboxd --config etc/outbox.yaml status   what is pending, what is stuck

    --config FILE may stand before or after a command; default: $OUTBOXD_CONFIG. --debug shows tracebacks.
    """
    if ctx.invoked_subcommand is None:
        if not ctx.obj.has_config:
            click.echo(ctx.get_help())
            return EXIT_USAGE
        return int(ctx.invoke(_Commands.get_command(cli, ctx, "run")))  # type: ignore[arg-type]  # "run" is there
    return EXIT_DONE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit status."""
    options, rest = Options.from_arguments(sys.argv[1:] if arguments is None else arguments)
    try:
        if options.problem:
            raise click.UsageError(options.problem)
        with cli.make_context("outboxd", rest, obj=options) as ctx:  # not cli.main: it has exit statuses of its own
            result = cli.invoke(ctx)
        sys.stdout.flush()  # here, where a reader that has gone is understood
        return result if isinstance(result, int) else EXIT_DONE
    except ConfigError as error:
        for problem in error.problems:
            _say(problem, options.debug)
        return EXIT_USAGE
    except OutboxdError as error:
        return _failed(str(error), options.debug)
    except click.UsageError as error:
        hint = f" (see `{error.ctx.command_path} --help`)" if error.ctx else ""
        _say(f"{error.format_message()}{hint}", options.debug)
        return EXIT_USAGE
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _failed("interrupted", options.debug)
    except BrokenPipeError:  # whoever read our output has seen enough
        return EXIT_DONE
    except Exception as error:  # noqa: BLE001 - the outermost boundary: a person gets one line, not a traceback
        return _unexpected(error, options.debug)


def _unexpected(error: Exception, debug: bool) -> int:
    if isinstance(error, OSError) and error.errno in _STREAM_FAILED and error.filename is None:
        return _failed(f"cannot write the output: {error.strerror}", debug)
    if isinstance(error, UnicodeEncodeError):
        character = error.object[error.start]
        if "\ud800" <= character <= "\udfff":  # a byte of an argument that is no UTF-8
            _say("an argument is not UTF-8: write it in UTF-8", debug)
            return EXIT_USAGE
        what = f"cannot write the output: {character!a} is not in its character set {error.encoding}"
        return _failed(f"{what}; set PYTHONUTF8=1", debug)
    what = f"unexpected {type(error).__name__}: {error}"
    return _failed(f"{what}; run it again with --debug, and report it", debug)


def _failed(text: str, debug: bool) -> int:
    _say(text, debug)
    return EXIT_FAILED


def _say(text: str, debug: bool) -> None:
    """One line on standard error, without secrets; with --debug the traceback before it."""
    try:
        if debug:
            click.echo(redact(traceback.format_exc()), err=True)
        click.echo(f"outboxd: {clip(redact(text), LONGEST_LINE)}", err=True)
    except OSError:  # standard error is closed or full: the exit status has to do
        pass
