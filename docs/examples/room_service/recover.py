"""What puts things right where nobody comes to do it. A room that somebody comes to is recovered by its next owner, in
`Rooms._own` (cell.py).
"""

import threading

from room_service import wallet
from room_service.cell import Rooms
from room_service.lease import OwnedElsewhere
from room_service.timing import log

EVERY_S = 2.0


def keep_house(rooms: Rooms, ending: threading.Event) -> None:
    """Until the node ends: rooms with debits that stay held are loaded anew, by which they are settled."""
    node = rooms.settings.node
    while not ending.wait(EVERY_S):
        try:
            for room_id in wallet.rooms_with_held(rooms.database, rooms.settings.held_ms):
                try:
                    rooms.settle(room_id)
                except OwnedElsewhere:  # its owner keeps house, too
                    continue
                log("debits_settled", node, room_id=room_id)
        except Exception as error:  # noqa: BLE001  whatever is away: there is a next time
            log("housekeeping_failed", node, error=str(error))
