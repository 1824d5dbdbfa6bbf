"""How two router configurations differ, in a short text that shows no secret."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from fleet.config.router import PoolConfig, QueueConfig, RouterConfig, effective_capacity, shown_uri

_NAMED = 3
_LONGEST = 60
"""Characters shown of a name or value: a syncer repeats the text in each heartbeat, and people read it on one line."""
_HIDDEN = "(not shown)"


def difference(here: RouterConfig, in_force: RouterConfig) -> str:
    """'' if they mean the same."""
    queues = {queue.name: queue for queue in here.queues}, {queue.name: queue for queue in in_force.queues}
    pools = {pool.code: pool for pool in here.pools}, {pool.code: pool for pool in in_force.pools}
    return ", ".join(
        [
            *_only_one_has("queue", *queues),
            *_only_one_has("pool", *pools),
            *_both_have("queue", *({name: _of_queue(one) for name, one in side.items()} for side in queues)),
            *_both_have("pool", *({code: _of_pool(one) for code, one in side.items()} for side in pools)),
        ]
    )


def _only_one_has(noun: str, here: Mapping[str, object], in_force: Mapping[str, object]) -> list[str]:
    parts = {"only here": here.keys() - in_force.keys(), "only in force": in_force.keys() - here.keys()}
    return [f"{_list(noun, sorted(names))} {where}" for where, names in parts.items() if names]


def _both_have(
    noun: str, here: Mapping[str, Mapping[str, object]], in_force: Mapping[str, Mapping[str, object]]
) -> list[str]:
    """The fields, by their names in the file, with both values."""
    both = sorted(here.keys() & in_force.keys())
    changes = [f"{noun} {_cut(name)}.{text}" for name in both for text in _changes(here[name], in_force[name])]
    more = len(changes) - _NAMED
    return changes[:_NAMED] + ([f"{more} more of {noun}s in both"] if more > 0 else [])


def _changes(here: Mapping[str, object], in_force: Mapping[str, object]) -> Iterator[str]:
    for name, ours in here.items():
        theirs = in_force[name]
        if ours == theirs:
            continue
        mine, other = _shown(name, ours), _shown(name, theirs)
        # Two passwords, or a difference beyond the cut: say only that they differ.
        yield f"{name}: {mine} here → {other} in force" if mine != other else f"{name}: differs {_HIDDEN}"


def _of_queue(queue: QueueConfig) -> dict[str, object]:
    return {
        "queueUri": queue.uri,
        "connections": queue.connections,
        "visibilityTimeout": queue.visibility_timeout_s,
        "draining": queue.draining,
    }


def _of_pool(pool: PoolConfig) -> dict[str, object]:
    return {
        "concurrency": pool.concurrency,
        # As the file has it: a capacity that the concurrency implies would list one change twice.
        "capacity": None if pool.capacity == effective_capacity(pool.concurrency) else pool.capacity,
        "rateLimitPerMinute": pool.rate_limit_per_minute,
        "onFailure": pool.on_failure,
        "parkAfter": pool.park_after,
        "secret": pool.secret,
        "secretFile": pool.secret_file,
    }


def _shown(name: str, value: object) -> str:
    if value is None:
        return "none"
    if name == "secret":
        return _HIDDEN
    return _cut(shown_uri(str(value)) if name == "queueUri" else str(value))


def _list(noun: str, names: list[str]) -> str:
    shown: Iterable[str] = map(_cut, names[:_NAMED])
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{noun if len(names) == 1 else noun + 's'} {', '.join(shown)}{more}"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
