"""The URI of a JetStream queue, read once: `nats://[user:password@]host[:port]/STREAM/CONSUMER[?subject=…&groupToken=N]`.

A user without a password is a token, as in NATS's own tools. Neither is ever shown: a `repr`, a log line or an error
has only the host and the names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NoReturn
from urllib.parse import parse_qsl, unquote, urlsplit

from fleet.errors import InvalidConfig

DEFAULT_PORT = 4222
_NAME = re.compile(r"[^\s.*>/\\\x00-\x1f\x7f]{1,255}")
"""What the server allows for a stream and for a consumer."""
_OPTIONS = ("subject", "groupToken")


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsAddress:
    host: str
    port: int
    stream: str
    consumer: str
    subject: str = ""
    """What a new consumer takes of its stream ('': all), and where a publisher publishes ('': to the stream's one
    subject)."""
    group_token: int = 0
    """Which token of a message's subject, from 1, is its group if no header names one; 0: none."""
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)

    @property
    def server(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(uri: str) -> NatsAddress:
    """Raises `InvalidConfig`, in words that repeat nothing of the URI but names."""
    try:
        parts = urlsplit(uri)
        host, port = parts.hostname, parts.port or DEFAULT_PORT
    except ValueError:
        _refuse("its host or port cannot be read")
    if not host:
        _refuse("it names no host")
    stream, consumer = _names(parts.path)
    if parts.fragment:
        _refuse("it has a fragment; write '#' as %23")
    options = _options(parts.query)
    subject = options.get("subject", "")
    if subject and not is_subject(subject):
        _refuse("its subject is not valid")
    user, password = unquote(parts.username or ""), parts.password
    return NatsAddress(
        host=host,
        port=port,
        stream=stream,
        consumer=consumer,
        subject=subject,
        group_token=_group_token(options.get("groupToken")),
        user=user if password is not None else "",
        password=unquote(password or ""),
        token=user if password is None else "",
    )


def is_subject(text: str) -> bool:
    """Whether it may be published to or, with `*` and a final `>`, subscribed to."""
    tokens = text.split(".")
    return (
        all(tokens)
        and not any(c.isspace() or not c.isprintable() for c in text)
        and all(token in ("*", ">") or not {"*", ">"} & set(token) for token in tokens)
        and ">" not in tokens[:-1]
    )


def is_token(text: str) -> bool:
    """Whether it may stand between two dots of a subject that is published to."""
    return is_subject(text) and "." not in text and text not in ("*", ">")


def _names(path: str) -> tuple[str, str]:
    names = [unquote(name) for name in path.strip("/").split("/")]
    if len(names) != 2:
        _refuse("it must be nats://host/STREAM/CONSUMER")
    for what, name in zip(("stream", "consumer"), names, strict=True):
        if not _NAME.fullmatch(name):
            _refuse(f"a {what} needs a name without blanks, dots, '*', '>', '/' and '\\'")
    return names[0], names[1]


def _options(query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in _OPTIONS:
            _refuse(f"it has an unknown option; the known ones are {', '.join(_OPTIONS)}")
        if name in options:
            _refuse(f"it gives {name} twice")
        options[name] = value
    return options


def _group_token(text: str | None) -> int:
    if text is None:
        return 0
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:4]) <= 64 and len(text) <= 2):
        _refuse("its groupToken is not a number from 1 to 64")
    return int(text)


def _refuse(why: str) -> NoReturn:
    raise InvalidConfig(f"a nats:// URI cannot be used: {why}")
