"""The router configuration: which queues are read, and how each pool delivers. Validated whole, or refused whole."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args
from urllib.parse import urlsplit

from fleet.errors import InvalidConfig
from fleet.kinds import KIND_OF
from fleet.message import DEFAULT_POOL, MAX_NAME_CHARACTERS
from fleet.sign import Signer

OnFailure = Literal["return", "skip", "hold", "park"]

DEFAULT_POOL_CONCURRENCY = 20
DEFAULT_CONNECTIONS = 1
DEFAULT_VISIBILITY_S = 120
DEFAULT_PARK_AFTER = 10
CAPACITY_PER_SLOT = 20
MIN_CAPACITY = 50
MAX_VISIBILITY_S = 43_200  # SQS allows no more than 12 h
MAX_NUMBER = 1_000_000_000  # far above any use, far below what a Lua number counts exactly
MAX_QUEUE_NAME_CHARACTERS = 512  # a queue without a name is known by its URI

_ROUTER_FIELDS = frozenset({"queues", "connections", "processingPools"})
_QUEUE_FIELDS = frozenset({"queueName", "queueUri", "connections", "visibilityTimeout"})
_POOL_FIELDS = frozenset(
    {"code", "concurrency", "rateLimitPerMinute", "onFailure", "capacity", "parkAfter", "secret", "secretFile"}
)
_USER_INFO = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)[^/?#]*@")
_SECRET_PARAMETER = re.compile(r"(?<=[?&])(?:user|username|login|password|passcode|token|secret)=[^&#]*&?", re.I)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """One source queue. `name` is its identity everywhere; `uri` may carry a password and is not shown."""

    name: str
    uri: str = field(repr=False)
    connections: int = DEFAULT_CONNECTIONS
    visibility_timeout_s: int = DEFAULT_VISIBILITY_S
    draining: bool = False
    """No longer configured: what was taken from it is still acknowledged, and nothing more is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig:
    """How one pool delivers. Every number is the effective one."""

    code: str
    concurrency: int
    capacity: int
    rate_limit_per_minute: int | None = None
    on_failure: OnFailure = "return"
    park_after: int = DEFAULT_PARK_AFTER
    secret: str | None = field(default=None, repr=False)
    secret_file: str | None = None
    implied: bool = field(default=False, compare=False)
    """Added by us, as no configuration names it. One that does takes its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterConfig:
    queues: tuple[QueueConfig, ...] = ()
    pools: tuple[PoolConfig, ...] = ()
    remarks: tuple[str, ...] = field(default=(), compare=False)
    """What is allowed but probably a mistake: unknown fields and queue kinds."""

    def pool(self, code: str) -> PoolConfig | None:
        return next((pool for pool in self.pools if pool.code == code), None)

    def queue(self, name: str) -> QueueConfig | None:
        return next((queue for queue in self.queues if queue.name == name), None)


def parse_router_config(data: bytes) -> RouterConfig:
    """Read the JSON of a router configuration; InvalidConfig names every problem in it, in one line."""
    try:
        document = json.loads(data, object_pairs_hook=_object_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"not a JSON document: {error}") from error
    root = _Reader(problems=[], remarks=[])
    table = root.table(document, "$", _ROUTER_FIELDS)
    connections = root.integer(table, "connections", "", least=1) or DEFAULT_CONNECTIONS
    queues = [_queue(root, item, path, connections) for item, path in root.items(table, "queues", "")]
    pools = [_pool(root, item, path) for item, path in root.items(table, "processingPools", "")]
    _name_duplicates(root, "queues", "queue", [queue.name for queue in queues])
    _name_duplicates(root, "queues", "queueUri of", [bare_uri(queue.uri) for queue in queues])
    _name_duplicates(root, "processingPools", "pool", [pool.code for pool in pools])
    if root.problems:
        raise InvalidConfig("; ".join(dict.fromkeys(root.problems)))
    return _with_default_pool(RouterConfig(queues=tuple(queues), pools=tuple(pools), remarks=tuple(root.remarks)))


def merge(configs: Iterable[RouterConfig]) -> RouterConfig:
    """One configuration out of several: the first that names a queue or a pool wins."""
    queues: dict[str, QueueConfig] = {}
    pools: dict[str, PoolConfig] = {}
    remarks: list[str] = []
    uris: set[str] = set()
    for config in configs:
        remarks += config.remarks
        for queue in config.queues:
            # One queue read under two names would break the order of its groups.
            if queue.name not in queues and bare_uri(queue.uri) not in uris:
                queues[queue.name] = queue
                uris.add(bare_uri(queue.uri))
        for pool in config.pools:
            if not pool.implied:
                pools.setdefault(pool.code, pool)
    return _with_default_pool(
        RouterConfig(queues=tuple(queues.values()), pools=tuple(pools.values()), remarks=tuple(dict.fromkeys(remarks)))
    )


def canonical(config: RouterConfig) -> bytes:
    """The same bytes for the same meaning, secrets kept. `parse_router_config` reads them back."""
    return _dump(config, show=False)


def redacted(config: RouterConfig) -> bytes:
    """The configuration for people to read: without secrets."""
    return _dump(config, show=True)


def bare_uri(uri: str) -> str:
    """A URI without user, password or token."""
    return _SECRET_PARAMETER.sub("", _USER_INFO.sub(r"\1", uri)).rstrip("?&")


def shown_uri(uri: str) -> str:
    """A URI for people: nothing before the last @ is shown, even if the password was not percent-encoded."""
    return bare_uri(re.sub("://.*@", "://", uri))


def effective_capacity(concurrency: int) -> int:
    return max(CAPACITY_PER_SLOT * concurrency, MIN_CAPACITY)


def nearest(name: str, known: Iterable[str]) -> str:
    """Words for an error: which known name was probably meant."""
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return f", did you mean {close[0]}?" if close else ""


class _Reader:
    """Reads fields one by one and collects what is wrong, so that one attempt shows all of it."""

    def __init__(self, *, problems: list[str], remarks: list[str]) -> None:
        self.problems = problems
        self.remarks = remarks

    def wrong(self, path: str, demand: str, value: object) -> None:
        self.problems.append(f"{path}: must be {demand}, is {_shown(value)}")

    def table(self, value: object, path: str, known: frozenset[str]) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            self.wrong(path, "an object", value)
            return {}
        for key in value.keys() - known:
            self.remarks.append(f"{path}: unknown field {_shown(key)}{nearest(key, known)}")
        return cast("dict[str, Any]", value)

    def items(self, table: Mapping[str, Any], key: str, path: str) -> Iterator[tuple[object, str]]:
        value = table.get(key)
        if value is not None and not isinstance(value, list):
            self.wrong(f"{path}{key}", "a list", value)
            return
        for index, item in enumerate(value or ()):
            yield item, f"{path}{key}[{index}]"

    def integer(
        self, table: Mapping[str, Any], key: str, path: str, *, least: int, most: int = MAX_NUMBER
    ) -> int | None:
        value = table.get(key)
        if value is None:
            return None
        # To Python a bool is an int; to people it is not.
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.wrong(f"{path}{key}", f"an integer from {least} to {most}", value)
            return None
        return value

    def text(self, table: Mapping[str, Any], key: str, path: str, *, hidden: bool = False) -> str:
        value = table.get(key)
        if value is None:
            return ""
        if not isinstance(value, str) or not value.isprintable():
            self.wrong(f"{path}{key}", "printable text", "(not shown)" if hidden else value)
            return ""
        return value


def _queue(root: _Reader, item: object, path: str, connections: int) -> QueueConfig:
    table = root.table(item, path, _QUEUE_FIELDS)
    path += "."
    name = root.text(table, "queueName", path)
    uri = root.text(table, "queueUri", path, hidden=True)
    if not uri:
        if not table.get("queueUri") and isinstance(item, dict):
            root.problems.append(f"{path}queueUri: is missing")
    elif (flaw := _flaw_of_uri(uri)) is not None:
        root.problems.append(f"{path}queueUri: {flaw}")
        uri = ""
    elif (scheme := urlsplit(uri).scheme) not in KIND_OF:
        root.remarks.append(f"{path}queueUri: unknown kind of queue {_shown(scheme)}{nearest(scheme, KIND_OF)}")
    identity = name or bare_uri(uri)
    # Names become Redis hash tags, which end at the first brace.
    if len(identity) > MAX_QUEUE_NAME_CHARACTERS or "{" in identity or "}" in identity:
        demand = f"at most {MAX_QUEUE_NAME_CHARACTERS} characters without braces"
        root.wrong(f"{path}{'queueName' if name else 'queueUri'}", demand, identity)
    visibility_s = root.integer(table, "visibilityTimeout", path, least=1, most=MAX_VISIBILITY_S)
    return QueueConfig(
        name=identity,
        uri=uri,
        connections=root.integer(table, "connections", path, least=1) or connections,
        visibility_timeout_s=visibility_s or DEFAULT_VISIBILITY_S,
    )


def _flaw_of_uri(uri: str) -> str | None:
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        # The usual reason is a password with a slash in it, and Python's error text would quote part of it.
        return "is not a URI (special characters of a user or password need percent-encoding)"
    return None if parts.scheme and "://" in uri else "has no scheme"


def _pool(root: _Reader, item: object, path: str) -> PoolConfig:
    table = root.table(item, path, _POOL_FIELDS)
    path += "."
    code = root.text(table, "code", path)
    if not table.get("code") and isinstance(item, dict):
        root.problems.append(f"{path}code: is missing")
    elif code and (len(code) > MAX_NAME_CHARACTERS or any(char.isspace() or char in "{}" for char in code)):
        # A code becomes a Redis hash tag, a metric label and an argument in a shell.
        root.wrong(f"{path}code", f"at most {MAX_NAME_CHARACTERS} characters without spaces and braces", code)
    rate = root.integer(table, "rateLimitPerMinute", path, least=1)
    concurrency = root.integer(table, "concurrency", path, least=0) or max((rate or 0) // 60, 1)
    on_failure = root.text(table, "onFailure", path) or "return"
    if on_failure not in get_args(OnFailure):
        root.wrong(f"{path}onFailure", f"one of {', '.join(get_args(OnFailure))}", on_failure)
    secret = root.text(table, "secret", path, hidden=True)
    if secret:
        try:
            Signer(secret)
        except InvalidConfig as error:
            root.problems.append(f"{path}secret: {error}")
    secret_file = root.text(table, "secretFile", path)
    if secret and secret_file:
        root.problems.append(f"{path}secretFile: there is a secret as well; give one of them")
    return PoolConfig(
        code=code,
        concurrency=concurrency,
        capacity=root.integer(table, "capacity", path, least=1) or effective_capacity(concurrency),
        rate_limit_per_minute=rate,
        on_failure=cast("OnFailure", on_failure),
        park_after=root.integer(table, "parkAfter", path, least=1) or DEFAULT_PARK_AFTER,
        secret=secret or None,
        secret_file=secret_file or None,
    )


def _with_default_pool(config: RouterConfig) -> RouterConfig:
    if config.pool(DEFAULT_POOL) is not None:
        return config
    implied = PoolConfig(
        code=DEFAULT_POOL,
        concurrency=DEFAULT_POOL_CONCURRENCY,
        capacity=effective_capacity(DEFAULT_POOL_CONCURRENCY),
        implied=True,
    )
    return RouterConfig(queues=config.queues, pools=(*config.pools, implied), remarks=config.remarks)


def _name_duplicates(root: _Reader, path: str, kind: str, names: list[str]) -> None:
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if name and first.setdefault(name, index) != index:
            root.problems.append(f"{path}[{index}]: {kind} {_shown(name)} is already at {path}[{first[name]}]")


def _object_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the field {_shown(twice)} is there twice in one object")
    return table


def _shown(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _dump(config: RouterConfig, *, show: bool) -> bytes:
    pools: list[dict[str, object]] = []
    for pool in sorted(config.pools, key=lambda pool: pool.code):
        written: dict[str, object] = {
            "code": pool.code,
            "concurrency": pool.concurrency,
            "capacity": pool.capacity,
            "rateLimitPerMinute": pool.rate_limit_per_minute,
            "onFailure": pool.on_failure,
            "parkAfter": pool.park_after,
        }
        if pool.secret is not None:
            written["secret"] = "***" if show else pool.secret
        if pool.secret_file is not None:
            written["secretFile"] = pool.secret_file
        pools.append(written)
    queues = [
        {
            "queueName": queue.name,
            "queueUri": shown_uri(queue.uri) if show else queue.uri,
            "connections": queue.connections,
            "visibilityTimeout": queue.visibility_timeout_s,
        }
        for queue in sorted(config.queues, key=lambda queue: queue.name)
    ]
    document = {"queues": queues, "processingPools": pools}
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
