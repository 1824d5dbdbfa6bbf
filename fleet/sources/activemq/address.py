"""The address of an ActiveMQ queue: `stomp://[user:password@]host[:port]/QUEUE[?prefetch=N]`."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

from fleet.errors import InvalidConfig

DEFAULT_PORT = 61613
DEFAULT_PREFETCH = 5000
"""How many unacked messages the broker may give us. A message counts until it is settled, so this must be more than all
pools together take from this queue; it also bounds how many messages a coordinator keeps in memory."""
MOST_PREFETCH = 100_000


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int
    queue: str
    user: str = ""
    password: str = field(default="", repr=False)
    prefetch: int = DEFAULT_PREFETCH

    def __str__(self) -> str:
        """For logs and errors: without user and password."""
        return f"stomp://{self.host}:{self.port}/{self.queue}"


def parse_address(uri: str) -> Address:
    """No error repeats the URI: it may hold a password."""
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:
        raise InvalidConfig("the address of an ActiveMQ queue is stomp://[user:password@]host[:port]/QUEUE") from None
    queue = unquote(parts.path.removeprefix("/"))
    if not parts.hostname:
        raise InvalidConfig("the address of an ActiveMQ queue names no host")
    if not queue:
        raise InvalidConfig("the address of an ActiveMQ queue names no queue")
    # The broker reads these as several queues at once, as a pattern, or as an option.
    if any(char in queue for char in ",*>?") or not queue.isprintable():
        raise InvalidConfig("the name of an ActiveMQ queue holds a character that has a meaning to the broker")
    if parts.fragment:
        raise InvalidConfig("the address of an ActiveMQ queue takes no fragment")
    return Address(
        host=parts.hostname,
        port=port or DEFAULT_PORT,
        queue=queue,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        prefetch=_prefetch(parts.query),
    )


def _prefetch(query: str) -> int:
    options = parse_qs(query, keep_blank_values=True)
    if options.keys() - {"prefetch"}:
        raise InvalidConfig("the address of an ActiveMQ queue takes one option, prefetch")
    if not options:
        return DEFAULT_PREFETCH
    text = options["prefetch"][-1]
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_PREFETCH):
        raise InvalidConfig(f"prefetch of an ActiveMQ queue is a number from 1 to {MOST_PREFETCH}")
    return int(text)
