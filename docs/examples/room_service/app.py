"""The HTTP API.

    POST /rooms/<room_id>/<command>   {"command_id": "...", ...}    create, join, leave, mic_up, mic_down, send_gift,
                                                                    kick, ignite_rocket, launch_rocket
    GET  /rooms/<room_id>             GET /rooms                    a room as it was committed; the hottest ones
    PUT  /wallets/<user_id>           {"coins": 1000}               open an account
    GET  /healthz

200: done, or done before by the same command_id. 307: another node serves the room, its address is in Location. 503:
send the same command_id again. All others: it was not done, and will not be by itself.
"""

import re

import msgspec
from flask import Flask, Response, request
from redis.exceptions import RedisError

from room_service import wallet
from room_service.cell import CommandMismatch, Rooms
from room_service.cells import Busy
from room_service.database import Unavailable
from room_service.domain import AnyCommand, Refused, read_command
from room_service.lease import NoLeases, OwnedElsewhere
from room_service.store import Fenced

BODY_BYTES = 16 * 1024
_ROOM_ID = re.compile(r"[A-Za-z0-9_-]{1,48}")
"""What Tencent takes as the id of a group."""
_USER_ID = re.compile(r"[!-~]{1,32}")
_COMMAND_ID = re.compile(r"[!-~]{1,128}")

STATUSES: tuple[tuple[type[Exception] | tuple[type[Exception], ...], int], ...] = (
    (Refused, 409),
    (wallet.Insufficient, 402),
    ((CommandMismatch, wallet.DebitMismatch), 422),
    ((Unavailable, NoLeases, Busy, Fenced, wallet.WalletFenced, RedisError), 503),
    (ValueError, 400),
)


def make_app(rooms: Rooms) -> Flask:
    """The application of one node."""
    app = Flask("room_service")
    app.config["MAX_CONTENT_LENGTH"] = BODY_BYTES

    @app.post("/rooms/<room_id>/<kind>")
    def command(room_id: str, kind: str) -> Response:
        _checked(_ROOM_ID, room_id, "room_id: 1 to 48 of A-Z a-z 0-9 _ -")
        command_id, asked = _command(kind)
        return Response(rooms.execute(room_id, asked, command_id), mimetype="application/json")

    @app.get("/rooms/<room_id>")
    def room(room_id: str) -> Response:
        return _json(rooms.read(room_id))

    @app.get("/rooms")
    def hottest() -> Response:
        return _json([{"room_id": name, "heat": heat} for name, heat in rooms.projections.hottest(20)])

    @app.put("/wallets/<user_id>")
    def account(user_id: str) -> Response:
        _checked(_USER_ID, user_id, "user_id: 1 to 32 visible characters of ASCII")
        coins = _fields().get("coins")
        if not isinstance(coins, int) or not 0 <= coins <= 10**12:
            raise ValueError("coins: a whole number, 0 to 1,000,000,000,000")
        wallet.open_account(rooms.database, user_id, coins)
        return _json({"user_id": user_id})

    @app.get("/healthz")
    def healthz() -> Response:
        return _json({"node": rooms.settings.node})

    @app.errorhandler(OwnedElsewhere)
    def elsewhere(error: OwnedElsewhere) -> Response:
        if error.url == rooms.settings.url:  # of this node before it was started again: it runs out soon
            return _error(503, "the room's lease is that of an earlier process of this node")
        answer = _error(307, str(error))
        answer.headers["Location"] = error.url + request.path
        return answer

    for kinds, status in STATUSES:
        for one in kinds if isinstance(kinds, tuple) else (kinds,):
            app.register_error_handler(one, lambda error, status=status: _error(status, str(error)))
    return app


def _command(kind: str) -> tuple[str, AnyCommand]:
    fields = _fields()
    expected = "command_id: 1 to 128 visible characters of ASCII, new for each command"
    command_id = _checked(_COMMAND_ID, fields.pop("command_id", ""), expected)
    return command_id, read_command(kind, fields)


def _fields() -> dict[str, object]:
    fields = msgspec.json.decode(request.get_data())
    if not isinstance(fields, dict):
        raise ValueError("the body is a JSON object")
    return fields


def _checked(pattern: re.Pattern[str], value: object, expected: str) -> str:
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise ValueError(expected)
    return value


def _json(content: object) -> Response:
    return Response(msgspec.json.encode(content), mimetype="application/json")


def _error(status: int, text: str) -> Response:
    answer = _json({"error": text})
    answer.status_code = status
    if status == 503:
        answer.headers["Retry-After"] = "1"
    return answer
