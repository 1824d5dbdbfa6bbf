"""The address of a queue of our own: `fleet://NAME`."""

from __future__ import annotations

from urllib.parse import unquote

from fleet.errors import InvalidConfig
from fleet.kinds import kind_of
from fleet.message import MAX_NAME_CHARACTERS

PREFIX = "fleet://"
DOOR = f"{PREFIX}sqs/"
"""Behind it stand queues of the SQS door, in the same Redis and no queues of our own: fleet/sources/own/door."""


def is_own(uri: str) -> bool:
    """Whether it names a queue of our own. It may still name it wrongly: `name_of` says so."""
    return kind_of(uri) == "own" and not uri.lower().startswith(DOOR)


def name_of(uri: str) -> str:
    """The queue that a URI names."""
    name = unquote(uri[len(PREFIX) :]) if is_own(uri) else ""
    if not name or len(name) > MAX_NAME_CHARACTERS or not name.isprintable() or set(name) & set("{}/?#@ "):
        raise InvalidConfig(
            f"{PREFIX}NAME needs a name of at most {MAX_NAME_CHARACTERS} characters without spaces, braces and / ? # @"
        )
    return name


def uri_of(name: str) -> str:
    return f"{PREFIX}{name}"
