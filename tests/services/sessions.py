"""Who is connected to a database of the tests."""

from contextlib import closing

from tests.services.mariadb import connect


def sessions(url: str) -> int:
    """How many sessions there are on the database of a `mysql://` URL, asked on one of its own: so also when the server
    was frozen until now.
    """
    name = url.rpartition("/")[2]
    with closing(connect(url)) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("SELECT CONNECTION_ID()")
        ((own,),) = cursor.fetchall()
        cursor.execute("SHOW PROCESSLIST")  # information_schema would use a file, in a directory that others clean
        return sum(row[3] == name and row[0] != own for row in cursor.fetchall())
