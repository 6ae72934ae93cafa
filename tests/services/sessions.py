"""Who is connected to a database of the tests."""

from contextlib import closing

from outboxd.config.schema import Config
from tests.services.lanes import Table
from tests.services.mariadb import connect


def sessions(table: Table, config: Config) -> int:
    """How many sessions others than the table's own have on the database."""
    sql = "SELECT COUNT(*) FROM information_schema.processlist WHERE db = :name AND id <> CONNECTION_ID()"
    return int(table.connection.query(sql, {"name": config.database.name})[0][0])


def sessions_at(url: str) -> int:
    """The same for a `mysql://` URL, asked on a connection that is made for it: also just after a server was frozen."""
    name = url.rpartition("/")[2]
    with closing(connect(url)) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(
            "SELECT COUNT(*) FROM information_schema.processlist WHERE db = %s AND id <> CONNECTION_ID()", (name,)
        )
        return int(cursor.fetchone()[0])
