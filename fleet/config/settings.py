"""Settings of this machine: from `fleet.toml`, then the environment.

The only module that reads settings of Fleet from the environment. Commands pass it on to the processes that they start,
and `spark/cluster.py` and `fleet/local/pipeline.py` look there for what Spark and Java keep in it.

A setting `name` of the section `[section]` is `FLEET_SECTION_NAME` in the environment; some have a second, older name.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from fleet.config.router import nearest, shown_uri
from fleet.config.scheduler_names import SCHEDULER, name_queue
from fleet.errors import InvalidConfig
from fleet.message import DEFAULT_POOL

HttpVersion = Literal["HTTP_2", "HTTP_1_1"]
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
QueueType = Literal["", "EMBEDDED", "SQS", "ACTIVEMQ"]

DEFAULT_FILE = "fleet.toml"
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_HTTP_VERSIONS = {"2": "HTTP_2", "HTTP/2": "HTTP_2", "1.1": "HTTP_1_1", "HTTP/1.1": "HTTP_1_1"}


def _setting(
    default: Any, *, env: str = "", least: float | None = None, most: float | None = None, hidden: bool = False
) -> Any:
    """A field: `env` is its name in the seeds, `least` and `most` bound it, `hidden` keeps it out of every repr."""
    return field(
        default=default, repr=not hidden, metadata={"env": env, "least": least, "most": most, "hidden": hidden}
    )


def _port(default: int) -> Any:
    # The system takes a larger number modulo 65,536, and listens where nobody looks.
    return _setting(default, least=0, most=65_535)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisSettings:
    url: str = _setting("", hidden=True)
    """Empty: the embedded one of `data_dir`, if it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    ttl_ms: int = _setting(10_000, least=100)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    timeout_ms: int = _setting(900_000, env="MEDIATOR_HTTP_TIMEOUT_MS", least=1)
    connect_timeout_ms: int = _setting(30_000, least=1)
    version: HttpVersion = field(default="HTTP_2", metadata={"env": "MEDIATOR_HTTP_VERSION"})


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressSettings:
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    host: str = _setting("127.0.0.1")
    port: int = _port(8420)
    token: str = _setting("", hidden=True)
    """For reads and writes. An address that is not loopback needs one; once set, it is asked for everywhere."""
    viewer_token: str = _setting("", hidden=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqsSettings:
    endpoint_override: str = _setting("", env="SQS_ENDPOINT_OVERRIDE")
    host: str = _setting("127.0.0.1")
    port: int = _port(9324)
    access_keys: str = _setting("", hidden=True)
    """Of the SQS door: `ID:SECRET`, comma-separated. An address that is not loopback needs one."""
    region: str = _setting("us-east-1")
    purge_interval_s: float = _setting(60.0, least=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PubsubSettings:
    host: str = _setting("127.0.0.1")
    port: int = _port(8085)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    max_in_flight: int = _setting(512, least=1)
    stop_within_s: float = _setting(30.0, least=0)
    """How long a worker that is told to stop waits for what it delivers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSettings:
    source: str = _setting("", env="MESSAGE_ROUTER_CONFIG_URL", hidden=True)
    """Files and URLs, comma-separated; the first that names a pool or queue wins."""
    inline: bytes = field(default=b"", repr=False, metadata={"internal": True})
    """The router configuration that `[queues]` and `[pools]` of fleet.toml make; `source` wins over it."""
    enabled: bool = _setting(True, env="MESSAGE_ROUTER_ENABLED")
    sync_interval_s: float = _setting(300.0, env="MESSAGE_ROUTER_SYNC_INTERVAL", least=0.1)
    max_pools: int = _setting(10_000, env="MESSAGE_ROUTER_MAX_POOLS", least=1)
    pool_warning_threshold: int = _setting(5_000, env="MESSAGE_ROUTER_POOL_WARNING_THRESHOLD", least=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSettings:
    url: str = _setting("", hidden=True)
    """The job store; empty: SQLite in `data_dir`."""
    app_key: str = _setting("", hidden=True)
    """Signs the tokens of the processing endpoint; empty: one that is made and kept in `data_dir`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedSettings:
    """The pipeline; what seed 004 calls `dispatch-scheduler.…` keeps that name as its second one."""

    enabled: bool = _setting(True, env="DISPATCH_SCHEDULER_ENABLED")
    poll_interval_s: float = _setting(0.5, env="DISPATCH_SCHEDULER_POLL_INTERVAL", least=0.01)
    batch_size: int = _setting(100_000, env="DISPATCH_SCHEDULER_BATCH_SIZE", least=1)
    """The most jobs in an epoch."""
    queue_url: str = _setting("fleet://dispatch", env="DISPATCH_SCHEDULER_QUEUE_URL", hidden=True)
    queue_type: QueueType = field(default="", metadata={"env": "DISPATCH_SCHEDULER_QUEUE_TYPE"})
    """Empty: whatever `queue_url` says. EMBEDDED without a `queue_url` makes one, of the file `embedded_db_path`."""
    embedded_db_path: str = _setting("", env="DISPATCH_SCHEDULER_EMBEDDED_DB_PATH")
    """Empty: `dispatch-queue.db` in `data_dir`."""
    default_dispatch_pool_code: str = _setting(DEFAULT_POOL, env="DISPATCH_SCHEDULER_DEFAULT_DISPATCH_POOL_CODE")
    """The pool of a message whose job names none."""
    max_depth: int = _setting(400_000, least=1)
    """With this many messages in the queue nothing is published. One pool may have half of them (`spark/room.py`)."""
    window: int = _setting(10, least=1)
    """NEXT_ON_ERROR jobs of one group that are out at a time."""
    shards: int = _setting(4, env="DISPATCH_SCHEDULER_MAX_CONCURRENT_GROUPS", least=1)
    """How many publish at a time. A group is always in one of them."""
    dedup_s: float = _setting(3600.0, least=1)
    """How long our own queue remembers what was published: a driver that crashed must be back by then."""
    processing_endpoint: str = _setting("", env="DISPATCH_SCHEDULER_PROCESSING_ENDPOINT")
    """Empty: `fleet server` as it is set up here."""
    stale_queued_threshold_minutes: int = _setting(15, env="DISPATCH_SCHEDULER_STALE_QUEUED_THRESHOLD_MINUTES", least=0)
    stale_queued_poll_interval_s: float = _setting(60.0, env="DISPATCH_SCHEDULER_STALE_QUEUED_POLL_INTERVAL", least=0.1)
    patience_s: float = _setting(300.0, least=1)
    """How long Spark, or a statement, may show no progress before the driver gives up the lead."""
    master: str = _setting("local[*]")
    """Where Spark runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    level: LogLevel = "INFO"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    data_dir: Path = Path(".fleet")
    """Beside the project, not in HOME: one folder to delete, and two checkouts never share a fleet."""
    failpoint: str = _setting("")
    redis: RedisSettings = RedisSettings()
    lease: LeaseSettings = LeaseSettings()
    http: HttpSettings = HttpSettings()
    egress: EgressSettings = EgressSettings()
    server: ServerSettings = ServerSettings()
    sqs: SqsSettings = SqsSettings()
    pubsub: PubsubSettings = PubsubSettings()
    worker: WorkerSettings = WorkerSettings()
    config: ConfigSettings = ConfigSettings()
    database: DatabaseSettings = DatabaseSettings()
    feed: FeedSettings = FeedSettings()
    log: LogSettings = LogSettings()
    file: Path | None = field(default=None, metadata={"internal": True})
    remarks: tuple[str, ...] = field(default=(), compare=False, metadata={"internal": True})

    def redacted(self) -> dict[str, Any]:
        """What `fleet config show` may print."""
        return {name: value for name, value in _visible(self) if name not in ("file", "remarks")}


def load(
    *,
    config: str | None = None,
    redis_url: str | None = None,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Settings:
    """Read everything once. `config` and `redis_url` are what the command line chose; they win."""
    environment = os.environ if environment is None else environment
    directory = (directory or Path.cwd()).absolute()
    chosen = config or environment.get("FLEET_CONFIG") or ""
    named = chosen if chosen.endswith(".toml") else ""
    file = directory / (named or DEFAULT_FILE)
    document = _read_toml(file) if named or file.is_file() else {}
    inline = _inline_router(document, str(file))

    remarks: list[str] = []
    values = _from_file(document, str(file), base=file.parent)
    values |= _from_environment(environment, remarks, base=directory)
    if chosen and not named:
        values["config", "source"] = _absolute_sources(chosen, directory)
    if redis_url:
        values["redis", "url"] = redis_url
    values.setdefault(("", "data_dir"), directory / ".fleet")
    name_queue(values, base=directory)

    sections: dict[str, dict[str, Any]] = {}
    for (section, name), value in values.items():
        sections.setdefault(section, {})[name] = value
    if inline:
        sections.setdefault("config", {})["inline"] = inline
    top = sections.pop("", {})
    built = {section: _SECTIONS[section](**given) for section, given in sections.items()}
    return Settings(**top, **built, file=file if document else None, remarks=tuple(remarks))


_SECTIONS: dict[str, type[Any]] = {
    name: kind
    for name, kind in get_type_hints(Settings).items()
    if isinstance(kind, type) and dataclasses.is_dataclass(kind)
}


def _fields() -> Iterator[tuple[str, str, Any, Mapping[str, Any]]]:
    """Every setting: section, name, type, metadata."""
    for section, owner in [("", Settings), *_SECTIONS.items()]:
        hints = get_type_hints(owner)
        for item in dataclasses.fields(owner):
            if item.name not in _SECTIONS and not item.metadata.get("internal"):
                yield section, item.name, hints[item.name], item.metadata


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidConfig(f"{file}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"{file}: not TOML: {error}") from error


def _from_file(document: Mapping[str, Any], file: str, *, base: Path) -> dict[tuple[str, str], Any]:
    known = {(section, name): (kind, metadata) for section, name, kind, metadata in _fields()}
    problems: list[str] = []
    values: dict[tuple[str, str], Any] = {}
    for top, content in document.items():
        if top in ("queues", "pools"):
            continue
        if top == SCHEDULER and isinstance(content, dict):
            # What `[feed]` says wins, whether it stands above or below.
            values = _from_scheduler(content, problems, base=base) | values
            continue
        if top in _SECTIONS and not isinstance(content, dict):
            problems.append(f"[{top}] must be a table")
            continue
        given = {(top, name): value for name, value in content.items()} if top in _SECTIONS else {("", top): content}
        for key, value in given.items():
            label = f"[{key[0]}] {key[1]}" if key[0] else key[1]
            if key not in known:
                rivals = {name for section, name in known if section == key[0]}
                rivals |= set() if key[0] else {*_SECTIONS, "queues", "pools"}
                problems.append(f"{label}: unknown{nearest(key[1], rivals)}")
                continue
            try:
                values[key] = _converted(key, value, *known[key], from_text=False, base=base)
            except ValueError as error:
                problems.append(f"{label}: {error}")
    if problems:
        raise InvalidConfig(f"{file}: {'; '.join(problems)}")
    return values


def _from_scheduler(table: Mapping[str, Any], problems: list[str], *, base: Path) -> dict[tuple[str, str], Any]:
    """`[dispatch-scheduler]`, as seed 004 writes its properties: 5s, 20, true."""
    by_name = {metadata.get("env"): (section, name, kind, metadata) for section, name, kind, metadata in _fields()}
    values: dict[tuple[str, str], Any] = {}
    for given, value in table.items():
        found = by_name.get(f"{SCHEDULER}-{given}".replace("-", "_").upper())
        if found is None:
            problems.append(f"[{SCHEDULER}] {given}: unknown")
            continue
        section, name, kind, metadata = found
        try:
            values[section, name] = _converted((section, name), value, kind, metadata, from_text=False, base=base)
        except ValueError as error:
            problems.append(f"[{SCHEDULER}] {given}: {error}")
    return values


def _from_environment(environment: Mapping[str, str], remarks: list[str], *, base: Path) -> dict[tuple[str, str], Any]:
    problems: list[str] = []
    values: dict[tuple[str, str], Any] = {}
    names = {"FLEET_CONFIG"}
    for section, name, kind, metadata in _fields():
        ours = "_".join(["FLEET", *([section] if section else []), name]).upper()
        names.add(ours)
        # Our name goes before the seeds'. An empty variable counts as not set, as unit files and compose files mean it.
        for variable in filter(environment.get, (ours, metadata.get("env") or ours)):
            try:
                values[section, name] = _converted(
                    (section, name), environment[variable], kind, metadata, from_text=True, base=base
                )
            except ValueError as error:
                problems.append(f"{variable}: {error}")
            break
    if problems:
        raise InvalidConfig("; ".join(problems))
    strangers = (variable for variable in environment if variable.startswith("FLEET_") and variable not in names)
    remarks.extend(f"{variable}: no setting has this name{nearest(variable, names)}" for variable in strangers)
    return values


def _converted(
    key: tuple[str, str], value: Any, kind: Any, metadata: Mapping[str, Any], *, from_text: bool, base: Path
) -> Any:
    """A value as its field wants it; ValueError says what the field wants, and shows no secret."""
    shown = "" if metadata.get("hidden") else f", is {json.dumps(value, default=str)[:60]}"
    if key == ("http", "version"):
        value = _HTTP_VERSIONS.get(str(value), value)
    if key == ("config", "source") and isinstance(value, str):
        return _absolute_sources(value, base)
    if kind in (int, float):
        return _number(value, kind, metadata, from_text=from_text, shown=shown)
    if kind is bool:
        if from_text:
            value = {"true": True, "1": True, "false": False, "0": False}.get(value.lower())
        if not isinstance(value, bool):
            raise ValueError(f"must be true or false{shown}")
        return value
    if get_origin(kind) is tuple:
        if from_text:
            return tuple(item.strip() for item in value.split(",") if item.strip())
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ValueError(f"must be a list of strings{shown}")
        return tuple(value)
    if not isinstance(value, str):
        raise ValueError(f"must be a string{shown}")
    if get_origin(kind) is Literal and value not in get_args(kind):
        raise ValueError(f"must be one of {', '.join(get_args(kind))}{shown}")
    return base / value if kind is Path else value


def _number(value: Any, kind: type, bounds: Mapping[str, Any], *, from_text: bool, shown: str) -> Any:
    least, most = bounds.get("least"), bounds.get("most")
    if kind is float and isinstance(value, str):
        # A duration: "5m", "30s", "1.5" (seconds).
        match = _DURATION.fullmatch(value.strip())
        value = float(match[1]) * _SECONDS[match[2] or "s"] if match else None
    elif from_text:
        value = int(value) if re.fullmatch(r"[+-]?\d{1,15}", value.strip()) else None
    wanted = (int, float) if kind is float else int
    fits = isinstance(value, wanted) and not isinstance(value, bool) and math.isfinite(value)
    if not fits or (least is not None and value < least) or (most is not None and value > most):
        span = "" if least is None else f" of at least {least}" if most is None else f" from {least} to {most}"
        raise ValueError(f"must be {'a duration (like 30s or 5m)' if kind is float else 'an integer'}{span}{shown}")
    return kind(value)


def _absolute_sources(sources: str, base: Path) -> str:
    """File names are relative to where they were written, so that every process finds the same file."""
    items = (item.strip() for item in sources.split(","))
    return ",".join(item if "://" in item else str(base / item) for item in items if item)


def _inline_router(document: Mapping[str, Any], file: str) -> bytes:
    """`[pools.CODE]` and `[queues.NAME]` of fleet.toml in the words of the router configuration, or nothing."""
    router: dict[str, list[dict[str, Any]]] = {}
    words = {"uri": "queueUri", "visibility_timeout_s": "visibilityTimeout", "visibility_timeout": "visibilityTimeout"}
    for section, names, identity in (("queues", "queues", "queueName"), ("pools", "processingPools", "code")):
        content = document.get(section, {})
        if not isinstance(content, dict) or not all(isinstance(item, dict) for item in content.values()):
            raise InvalidConfig(f"{file}: [{section}] must hold tables, like [{section}.NAME]")
        for name, table in content.items():
            renamed = {words.get(key, re.sub(r"_(\w)", lambda m: m[1].upper(), key)): table[key] for key in table}
            router.setdefault(names, []).append({identity: name, **renamed})
    return json.dumps(router, default=str).encode() if router else b""


def _visible(owner: Any) -> Iterator[tuple[str, Any]]:
    for item in dataclasses.fields(owner):
        value = getattr(owner, item.name)
        if dataclasses.is_dataclass(value):
            yield item.name, dict(_visible(value))
        elif item.name == "inline":
            continue
        elif item.metadata.get("hidden") and value:
            yield item.name, ",".join(map(shown_uri, value.split(","))) if "://" in value else "***"
        else:
            yield item.name, str(value) if isinstance(value, Path) else value
