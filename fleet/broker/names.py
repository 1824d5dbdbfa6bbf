"""What topics and subscriptions may be called, and how messages are.

Pub/Sub's rule, but for the shortest: it asks for three characters, and the seed names no limit. A name of one is as
good as any, and people type `q`. Everything that Pub/Sub accepts is accepted here, so names can move there and back.
No name holds a brace, a colon, a slash or a space: it stands in Redis keys, in URIs and in log lines as it is.
"""

from __future__ import annotations

import re
from hashlib import blake2b

from fleet.broker.errors import InvalidArgument

MAX_NAME_CHARACTERS = 255
_NAME = re.compile(rf"[A-Za-z][A-Za-z0-9\-_.~+%]{{0,{MAX_NAME_CHARACTERS - 1}}}")
_RESERVED = "goog"
_IDS = blake2b(digest_size=16, person=b"fleet message id")
"""What the digest is for. It never changes: an id that was told once must come out the same."""
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def check_topic_name(name: object) -> str:
    return _checked("topic", name)


def check_subscription_name(name: object) -> str:
    return _checked("subscription", name)


def message_id(tag: str, incarnation: int, partition: int, number: int) -> str:
    """The id of a message: a UUID that follows from its place, so nothing has to be stored for it.

    A queue that was deleted and made anew counts from another incarnation, so ids are unique over all queues and times.
    """
    digest = _IDS.copy()
    digest.update(f"{incarnation}/{partition}/{number}/{tag}".encode())
    d = digest.hexdigest()
    # Version 8 and variant 2: a UUID of one's own making (RFC 9562).
    return f"{d[:8]}-{d[8:12]}-8{d[13:16]}-{_VARIANT[d[16]]}{d[17:20]}-{d[20:]}"


def _checked(kind: str, name: object) -> str:
    if not isinstance(name, str):
        raise InvalidArgument(f"Invalid {kind} name: must be text, is {type(name).__name__}")
    if _NAME.fullmatch(name) is None:
        raise InvalidArgument(f"Invalid {kind} name: {_reason(name)}")
    if name.startswith(_RESERVED):
        raise InvalidArgument(f"Invalid {kind} name: {name} begins with {_RESERVED}, which is reserved")
    return name


def _reason(name: str) -> str:
    if not name:
        return "it is empty"
    if len(name) > MAX_NAME_CHARACTERS:
        return f"{name[:20]}… has {len(name)} characters, the limit is {MAX_NAME_CHARACTERS}"
    if not re.match("[A-Za-z]", name):
        return f"{name!r} does not begin with a letter"
    return f"{name!r} holds something other than letters, digits and - _ . ~ + %"
