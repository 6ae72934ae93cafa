"""`outboxd init-db`: the tables."""

import os

import click

from outboxd.cli import show
from outboxd.cli.shared import Command, Options
from outboxd.config.schema import Database, Lane
from outboxd.errors import StoreRefused, StoreUnavailable
from outboxd.store import connect, migrate
from outboxd.store.connection import Connection
from outboxd.store.migrate_adopt import ASK, EXISTING, Adoption


@click.command("init-db", cls=Command)
@click.option("--print", "prints", is_flag=True, help="Print the SQL that would be run; change nothing.")
@click.option("--adopt", "adopts", is_flag=True, help="Take over a table of another make: add an id if it has none.")
@click.option(
    "--existing",
    type=click.Choice(EXISTING),
    help="With --adopt: what the rows that stand there are, where the table has no status.",
)
@click.pass_obj
def init_db(options: Options, prints: bool, adopts: bool, existing: str | None) -> None:
    """Create the tables of every enabled lane, or migrate older ones in place. Running it again changes nothing."""
    if existing is not None and not adopts:
        raise click.UsageError("--existing is for --adopt only")
    lanes = options.enabled_lanes
    database = migrate.patient(options.config.database)
    adoption = Adoption(existing or ASK) if adopts else None
    if prints:
        _print(database, lanes, adoption)
        return
    with options.connection(database, create=True) as connection:
        migrate.init_db(connection, lanes, show.line, adoption=adoption)


def _print(database: Database, lanes: list[Lane], adoption: Adoption | None) -> None:
    """For what the database holds; for an empty one where it cannot be asked, since a DBA may want to read first."""
    connection, why = _open(database)
    if connection is None:
        click.echo(f"outboxd: {why}; this is the SQL for an empty database", err=True)
        click.echo(migrate.print_sql(database.scheme, lanes), nl=False)
        return
    try:
        click.echo(migrate.print_sql(database.scheme, lanes, connection, adoption), nl=False)
    finally:
        connection.close()


def _open(database: Database) -> tuple[Connection | None, str]:
    if database.scheme == "sqlite" and not os.path.exists(database.path):
        return None, f"there is no database {database.path} yet"
    try:
        return connect(database), ""
    except (StoreUnavailable, StoreRefused) as error:
        return None, str(error)
