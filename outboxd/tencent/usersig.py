"""UserSig, version 2 (TLSSigAPIv2): how a caller proves to Tencent IM who it is. It is as secret as the key itself."""

import base64
import hmac
import json
import zlib

from outboxd.config.schema import TencentApp

LIFE_S = 86_400
"""The least that Tencent recommends: what leaks is of no use for long."""

_ALPHABET = bytes.maketrans(b"+/=", b"*-_")


def make(app: TencentApp, now_s: float, life_s: int = LIFE_S) -> str:
    """A signature that is valid from now_s (time.time()) for life_s. Its letters need no quoting in a URL."""
    time = int(now_s)
    signed = f"TLS.identifier:{app.identifier}\nTLS.sdkappid:{app.sdk_app_id}\nTLS.time:{time}\nTLS.expire:{life_s}\n"
    digest = hmac.digest(app.secret_key.encode(), signed.encode(), "sha256")
    fields = {
        "TLS.ver": "2.0",
        "TLS.identifier": app.identifier,
        "TLS.sdkappid": app.sdk_app_id,
        "TLS.expire": life_s,
        "TLS.time": time,
        "TLS.sig": base64.b64encode(digest).decode("ascii"),
    }
    packed = zlib.compress(json.dumps(fields).encode())
    return base64.b64encode(packed).translate(_ALPHABET).decode("ascii")


class Signatures:
    """One signature for each app, made when it is first wanted, and anew when half of its life is over."""

    def __init__(self, life_s: int = LIFE_S) -> None:
        self._life_s = life_s
        self._made: dict[TencentApp, tuple[float, str]] = {}

    def get(self, app: TencentApp, now_s: float) -> str:
        """The app's signature. now_s: time.time(); if the clock was set back, a new one is made by the new time."""
        made_s, signature = self._made.get(app, (0.0, ""))
        if not signature or not 0 <= now_s - made_s < self._life_s / 2:
            signature = make(app, now_s, self._life_s)
            self._made[app] = (now_s, signature)
        return signature

    def drop(self, app: TencentApp, refused: str) -> None:
        """Tencent does not take this one any more. A newer one, made for another call meanwhile, stays."""
        if self._made.get(app, (0.0, ""))[1] == refused:
            del self._made[app]
