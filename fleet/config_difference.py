"""What two router configurations differ in, in words that show no secret."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fleet.config import RouterConfig

_NAMED = 3


def difference(here: RouterConfig, in_force: RouterConfig) -> str:
    """'' where they mean the same."""
    queues = {queue.name: queue for queue in here.queues}, {queue.name: queue for queue in in_force.queues}
    pools = {pool.code: pool for pool in here.pools}, {pool.code: pool for pool in in_force.pools}
    return ", ".join([*_differences("queue", *queues), *_differences("pool", *pools)])


def _differences(noun: str, here: Mapping[str, object], in_force: Mapping[str, object]) -> list[str]:
    changed = (name for name in here.keys() & in_force.keys() if here[name] != in_force[name])
    parts = {
        "only here": here.keys() - in_force.keys(),
        "only in force": in_force.keys() - here.keys(),
        "changed": changed,
    }
    return [f"{_list(noun, sorted(names))} {how}" for how, found in parts.items() if (names := list(found))]


def _list(noun: str, names: list[str]) -> str:
    shown: Iterable[str] = names[:_NAMED]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{noun if len(names) == 1 else noun + 's'} {', '.join(shown)}{more}"
