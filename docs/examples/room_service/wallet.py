"""The wallet: a small ledger with debits that are idempotent by command_id. It stands for a service of its own, with a
transaction of its own for each call.

A debit is *held* until the room service says that the command was committed (*spent*), or that it was not (*refunded*).
A held one is never lost sight of: the room's next owner settles it, and `housekeeping` where nobody comes.
"""

from collections.abc import Callable, Collection
from functools import partial

from MySQLdb.cursors import Cursor

from room_service.database import Database

HELD, SPENT, REFUNDED = "held", "spent", "refunded"
AT_ONCE = 100
_NOW = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000"


class Insufficient(Exception):
    """There are not enough coins."""


class DebitMismatch(Exception):
    """The command_id was used for another debit."""


class WalletFenced(Exception):
    """The room has a newer owner, who has settled its debits."""


def open_account(database: Database, user_id: str, coins: int) -> None:
    """Once; an account that is there stays as it is."""
    with database.transaction() as cursor:
        cursor.execute("INSERT IGNORE INTO wallet_account (user_id, coins) VALUES (%s, %s)", (user_id, coins))


def debit(database: Database, command_id: str, room_id: str, epoch: int, user_id: str, coins: int) -> None:
    """Take coins, once for a command_id however often it is asked for. epoch: of the room's owner.

    Raises Insufficient, DebitMismatch, WalletFenced; Unavailable, where nobody knows: ask again.
    """

    def work(cursor: Cursor) -> None:
        if _fence(cursor, room_id) > epoch:
            raise WalletFenced(f"{room_id} has a newer owner than that of epoch {epoch}")
        cursor.execute(
            "SELECT room_id, user_id, coins, state FROM wallet_debit WHERE command_id = %s FOR UPDATE", (command_id,)
        )
        row = cursor.fetchone()
        if row is not None and row[:3] != (room_id, user_id, coins):
            raise DebitMismatch(f"{command_id} was used for another debit")
        if row is not None and row[3] != REFUNDED:
            return
        cursor.execute(
            "UPDATE wallet_account SET coins = coins - %s WHERE user_id = %s AND coins >= %s", (coins, user_id, coins)
        )
        if cursor.rowcount != 1:
            raise Insufficient(f"{user_id} does not have {coins} coins")
        cursor.execute(
            "INSERT INTO wallet_debit (command_id, room_id, user_id, coins, state, updated_at_ms) "
            f"VALUES (%s, %s, %s, %s, 'held', {_NOW}) "
            f"ON DUPLICATE KEY UPDATE state = 'held', updated_at_ms = {_NOW}",
            (command_id, room_id, user_id, coins),
        )

    database.run(work)


def spend(database: Database, command_id: str) -> None:
    """The command was committed: the debit stays."""
    with database.transaction() as cursor:
        _spend(cursor, command_id)


def settle(
    database: Database, room_id: str, epoch: int, committed: Callable[[Collection[str]], set[str]]
) -> tuple[int, int]:
    """Spend the held debits of a room whose commands were committed, and refund all others; how many of each.

    epoch: of the owner that asks. Debits of earlier owners are refused from now on, so that none comes after this.
    """

    def fence(cursor: Cursor) -> None:
        if _fence(cursor, room_id) < epoch:
            cursor.execute("UPDATE wallet_fence SET epoch = %s WHERE room_id = %s", (epoch, room_id))

    database.run(fence)
    spent = refunded = 0
    while held := _held(database, room_id):
        done = committed(held)
        for command_id in held:
            database.run(partial(_spend if command_id in done else _refund, command_id=command_id))
        spent += len(done)
        refunded += len(held) - len(done)
        if len(held) < AT_ONCE:
            break
    return spent, refunded


def rooms_with_held(database: Database, older_than_ms: int) -> list[str]:
    """Some rooms with debits that have been held for longer than that."""
    with database.transaction() as cursor:
        cursor.execute(
            f"SELECT room_id FROM wallet_debit WHERE state = 'held' AND updated_at_ms < {_NOW} - %s LIMIT %s",
            (older_than_ms, AT_ONCE),
        )
        return sorted({row[0] for row in cursor.fetchall()})


def _fence(cursor: Cursor, room_id: str) -> int:
    """The latest epoch that the wallet knows of; its row is locked."""
    question = "SELECT epoch FROM wallet_fence WHERE room_id = %s FOR UPDATE"
    cursor.execute(question, (room_id,))
    row = cursor.fetchone()
    if row is None:
        cursor.execute("INSERT IGNORE INTO wallet_fence (room_id, epoch) VALUES (%s, 0)", (room_id,))
        cursor.execute(question, (room_id,))
        row = cursor.fetchone()
    return int(row[0])


def _held(database: Database, room_id: str) -> list[str]:
    with database.transaction() as cursor:
        cursor.execute(
            "SELECT command_id FROM wallet_debit WHERE room_id = %s AND state = 'held' LIMIT %s", (room_id, AT_ONCE)
        )
        return [row[0] for row in cursor.fetchall()]


def _spend(cursor: Cursor, command_id: str) -> None:
    cursor.execute(
        f"UPDATE wallet_debit SET state = 'spent', updated_at_ms = {_NOW} WHERE command_id = %s AND state = 'held'",
        (command_id,),
    )


def _refund(cursor: Cursor, command_id: str) -> None:
    cursor.execute(
        "SELECT user_id, coins FROM wallet_debit WHERE command_id = %s AND state = 'held' FOR UPDATE", (command_id,)
    )
    row = cursor.fetchone()
    if row is None:
        return
    cursor.execute("UPDATE wallet_account SET coins = coins + %s WHERE user_id = %s", (row[1], row[0]))
    cursor.execute(
        f"UPDATE wallet_debit SET state = 'refunded', updated_at_ms = {_NOW} WHERE command_id = %s", (command_id,)
    )
