"""The address of an embedded queue: `sqlite:///PATH?queue=NAME`, a file and the name of one queue in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

from fleet.errors import InvalidConfig


@dataclass(frozen=True, slots=True)
class QueueAddress:
    path: Path
    queue: str


def parse_address(uri: str) -> QueueAddress:
    """Read `sqlite:///path?queue=name`.

    The path begins after the third slash: `sqlite:///data/q.db?queue=a` is `data/q.db` below the
    working directory, `sqlite:////srv/q.db?queue=a` is `/srv/q.db`.
    """
    parts = urlsplit(uri)
    if parts.netloc:
        raise InvalidConfig(f"sqlite URI needs three slashes before its path (sqlite:///{parts.netloc}{parts.path})")
    path = unquote(parts.path.removeprefix("/"))
    options = parse_qs(parts.query, keep_blank_values=True)
    names = options.pop("queue", [])
    if not path or path.endswith("/") or "\0" in path or parts.fragment:
        raise InvalidConfig("sqlite URI has no file (sqlite:///path?queue=name)")
    if len(names) != 1 or not names[0]:
        raise InvalidConfig("sqlite URI must name one queue (sqlite:///path?queue=name)")
    if options:
        raise InvalidConfig(f"sqlite URI has an unknown option: {', '.join(sorted(options))}")
    return QueueAddress(Path(path), names[0])


def uri_of(address: QueueAddress) -> str:
    return f"sqlite:///{quote(str(address.path))}?queue={quote(address.queue)}"
