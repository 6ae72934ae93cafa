"""Is the daemon alive? Asks /healthz through the admin socket, which is there whatever the configuration says of
admin.listen. Exit status 0: it answers; else 1, with the reason.

    healthcheck.py [SOCKET]     default: /run/outboxd/outboxd.sock
"""

import http.client
import socket
import sys

TIMEOUT_S = 4.0


def problem(path: str) -> str | None:
    """Why it is not alive; None if it is."""
    connection = http.client.HTTPConnection("localhost", timeout=TIMEOUT_S)
    connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.sock.settimeout(TIMEOUT_S)
    try:
        connection.sock.connect(path)
        connection.request("GET", "/healthz")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"{path}: {error}"
    finally:
        connection.close()
    return None if status == 200 else f"{path}: /healthz answers {status}"


if __name__ == "__main__":
    sys.exit(problem(sys.argv[1] if len(sys.argv) > 1 else "/run/outboxd/outboxd.sock"))
