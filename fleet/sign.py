"""The headers of Standard Webhooks: an endpoint that knows the pool's secret can tell that a request is ours, and new.

HMAC-SHA256 signs the message id, the time and the body, joined by dots (standardwebhooks.com).
"""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode, b64encode

from fleet.errors import InvalidConfig

_ENCODED = "whsec_"


class Signer:
    """Signs with every secret there is: while one replaces another, both are valid."""

    __slots__ = ("_keys",)

    def __init__(self, secrets: str) -> None:
        """`secrets`: `whsec_` and base64, or any text as it is; several are separated by spaces."""
        self._keys = [_key(secret) for secret in secrets.split()]
        if not self._keys:
            raise InvalidConfig("a signing secret is empty")

    def headers(self, message_id: str, timestamp_s: int, body: bytes) -> list[str]:
        """For this body alone. Another attempt has the same id and a time of its own."""
        content = b"%b.%d.%b" % (message_id.encode(), timestamp_s, body)
        signatures = " ".join(f"v1,{b64encode(hmac.digest(key, content, 'sha256')).decode()}" for key in self._keys)
        return [
            f"webhook-id: {message_id}",
            f"webhook-timestamp: {timestamp_s}",
            f"webhook-signature: {signatures}",
        ]


def _key(secret: str) -> bytes:
    if not secret.startswith(_ENCODED):
        return secret.encode()
    try:
        key = b64decode(secret.removeprefix(_ENCODED), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        # Without the secret itself: this ends up in a log.
        raise InvalidConfig(f"a signing secret that begins with {_ENCODED} must go on in base64") from None
    return key
