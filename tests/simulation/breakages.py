"""Bugs put in on purpose, in memory: what the simulation must find. `scripts/simulate --without NAME` takes a mend out.

Each is a few exact pieces of the source and what stands there instead. A piece that is not in the source (any more) is
an error: a breakage that breaks nothing would prove nothing. Apply them before anything of the fleet is imported.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.scenario import Family

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Change:
    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Breakage:
    what: str
    changes: tuple[Change, ...]
    found_at: int
    """The first seed from 1 on, of the families in `only` (none: of all), that failed because of it."""
    kinds: tuple[str, ...]
    """How it shows."""
    only: tuple[Family, ...] = ()

    @property
    def within(self) -> int:
        """So many seeds are tried: code that changes moves what a seed meets."""
        return self.found_at + 200


BREAKAGES: dict[str, Breakage] = {
    "ack-before-post": Breakage(
        what="a worker owes the ack when it sends the request",
        changes=(
            Change(
                "workers/deliver.py",
                "        if settle(lease, outcome):\n",
                "        from fleet.outcome import Delivered\n        if settle(lease, Delivered()):\n",
            ),
        ),
        found_at=2,
        kinds=("order", "lost", "stuck"),
        only=("endpoints",),
    ),
    "ack-before-submit": Breakage(
        what="a coordinator acks at the source before it submits",
        changes=(
            Change(
                "coordinator/admit.py",
                "        batch_id = secrets.token_hex(8)\n",
                "        batch_id = secrets.token_hex(8)\n"
                "        sent = [Receipt(r.received.broker_id, r.received.handle) for r, _ in fresh]\n"
                "        await self._source.ack(sent)\n",
            ),
        ),
        found_at=1,
        kinds=("order", "lost", "stuck"),
        only=("processes", "forgets"),
    ),
    "settle-without-epoch": Breakage(
        what="exchange.lua takes any epoch, from anybody",
        changes=(
            Change(
                "fleet/state/lua/exchange.lua",
                "  if epoch ~= plan.epoch or released[lane] then",
                "  if not epoch or released[lane] then",
            ),
            Change(
                "fleet/state/lua/exchange.lua",
                "  if holder then epoch, tier = held_under(holder, worker) end",
                "  if holder then epoch, tier = string.match(holder, '^([^\\31]*)\\31([^\\31]*)') end",
            ),
        ),
        found_at=2,
        kinds=("overlap", "order", "state", "lost"),
        only=("processes", "weather"),
    ),
    "release-before-outcome": Breakage(
        what="a lease is given back when its request is sent",
        changes=(
            Change(
                "workers/mediate.py",
                '        failpoint.hit("posted")\n',
                '        failpoint.hit("posted")\n'
                "        lease.link.owe(lease).release = 'ready'\n"
                "        lease.link.poke(urgent=True)\n",
            ),
        ),
        found_at=1,
        kinds=("overlap", "order", "stuck", "lost"),
    ),
    "reaper-that-drops": Breakage(
        what="exchange.lua deletes the messages of a lapsed lease",
        changes=(
            Change(
                "fleet/state/lua/exchange.lua",
                "    if not is_empty(lapsed[i]) then redis.call('LPUSH', ready, lapsed[i]) end\n",
                "    local keys = redis.call('LRANGE', regular_lane .. lapsed[i], 0, -1)\n"
                "    if #keys > 0 then redis.call('HDEL', entries, unpack(keys)) end\n"
                "    redis.call('DEL', regular_lane .. lapsed[i])\n",
            ),
        ),
        found_at=13,
        kinds=("stuck", "lost", "order", "state"),
        only=("processes",),
    ),
    "outbox-trimmed-uncopied": Breakage(
        what="the leader trims a dead worker's outbox without copying it",
        changes=(
            Change(
                "coordinator/outboxes.py",
                "            await Queue(self._client, queue).report(outcomes)\n",
                "            pass\n",
            ),
        ),
        found_at=60,
        kinds=("twice", "stuck", "lost", "order"),
        only=("processes", "weather"),
    ),
    "renewed-by-a-thread": Breakage(
        what="something beside the delivery loop of a worker renews its leases",
        changes=(
            Change(
                "workers/worker.py",
                "    async def run(self, metrics_port: int | None = None) -> None:\n"
                '        """Until SIGTERM, or until something crashes."""\n'
                "        loop = asyncio.get_running_loop()\n",
                "    async def _renew_for_ever(self):\n"
                "        while True:\n"
                "            await asyncio.sleep(self._ttl_ms / 4000)\n"
                "            for link in list(self._links.values()):\n"
                "                held = [(lease.lane, lease.epoch) for lease in link.leases.values()]\n"
                "                if held:\n"
                "                    await link.pool.renew(link._worker, held, ttl_ms=self._ttl_ms)\n"
                "\n"
                "    async def run(self, metrics_port: int | None = None) -> None:\n"
                "        loop = asyncio.get_running_loop()\n"
                "        import contextvars\n"
                "        contextvars.Context().run(loop.create_task, self._renew_for_ever())\n",
            ),
        ),
        found_at=1,
        kinds=("wedged",),
        only=("processes",),
    ),
    # Of issue 10, each by its number there -----------------------------------------------------------
    "1-refusals": Breakage(
        what="READONLY, MISCONF, NOREPLICAS and BUSY are no outages",
        changes=(Change("fleet/state/connect.py", "    except PASSING as error:\n", "    except () as error:\n"),),
        found_at=1,
        kinds=("crash",),
        only=("refuses",),
    ),
    "6-forgotten-room": Breakage(
        what="a new configuration clears the rooms that a wait reads again",
        changes=(
            Change(
                "coordinator/rooms.py",
                "        self._room = {}\n\n    def on_signal",
                "        self._room.clear()\n\n    def on_signal",
            ),
            Change(
                "coordinator/rooms.py",
                "                known.get(code, 0),\n                limits,\n",
                "                known[code],\n                limits,\n",
            ),
            Change(
                "coordinator/rooms.py",
                "        answered = await self._free.to(asking)\n"
                "        for code in asking:\n"
                "            free = known[code] = answered.get(code, 0)\n",
                "        answered = {}\n"
                "        for code, call in asking.items():\n"
                "            free = known[code] = answered[code] = await call()\n",
            ),
        ),
        found_at=16,
        kinds=("crash",),
        only=("config", "operator"),
    ),
    "7-lapsed-visibility": Breakage(
        what="where a source holds groups, newer messages join older ones whose visibility lapsed",
        changes=(
            Change("coordinator/admit.py", "early = set(overtaking(routed, known))", "early = set()"),
            Change("workers/settle.py", 'queue = entry.queue if entry.source_holds_groups else ""', 'queue = ""'),
        ),
        found_at=33,
        kinds=("order",),
        only=("together",),
    ),
    "8-tail-away": Breakage(
        what="a group takes newer messages while its tail is on the way back",
        changes=(
            Change(
                "fleet/state/lua/with/away.lua",
                "  return policy == 'hold' or policy == 'park'\n",
                "  return false\n",
            ),
        ),
        found_at=5,
        kinds=("order",),
    ),
    "9-full-of-waiting": Breakage(
        what="what fails in place is bounded a group only, what is fenced not at all, and waits for ever",
        changes=(
            Change(
                "fleet/state/lua/exchange.lua",
                "  local most = math.min(part_of(capacity, LANE_SHARE),"
                " part_of(capacity, REST_SHARE) - resting(in_place))\n"
                "  if not stays or most < 1 then\n",
                "  local most = stays and part_of(capacity, LANE_SHARE) or 1000000\n  if false then\n",
            ),
            Change(
                "fleet/state/lua/exchange.lua",
                "          rest_or_go_back(lane, delay_ms, back_ms, stays, cascaded, gone)\n",
                "          rest_or_go_back(lane, delay_ms, back_ms, kind == 'h', cascaded, gone)\n",
            ),
            Change("fleet/state/lua/submit.lua", "math.min(share, most - resting_now)", "math.min(share, most)"),
            Change("fleet/state/lua/submit.lua", "local full = resting and (", "local full = false and ("),
        ),
        found_at=7,
        kinds=("starved", "stuck"),
        only=("endpoints",),
    ),
    "10-rate-of-running-leases": Breakage(
        what="leases that were granted without a rate limit go on without permits",
        changes=(
            Change(
                "fleet/state/lua/exchange.lua", "if unpermitted > 0 then give_permits(rate, unpermitted, now) end\n", ""
            ),
            Change("workers/gate.py", " or link.policy.rated):", "):"),
        ),
        found_at=90,
        kinds=("rate",),
        only=("config", "operator"),
    ),
    "11-syncers": Breakage(
        what="two syncers with different files both publish",
        changes=(
            Change(
                "coordinator/syncer/leading.py", "            if not await self.keep():\n                break\n", ""
            ),
            Change(
                "coordinator/syncer/leading.py", "            if not is_fresh() and (", "            if False and ("
            ),
            Change("coordinator/syncer/leading.py", "epoch=self._lease.epoch", 'epoch=""'),
        ),
        found_at=1,
        kinds=("flapping",),
        only=("config",),
    ),
    "12-clock-back": Breakage(
        what="what a pool has scored does not follow a clock that steps back",
        changes=(
            Change(
                "fleet/state/lua/with/clock.lua",
                "  if not seen or now > seen then return end\n",
                "  do return end\n",
            ),
        ),
        found_at=6,
        kinds=("stuck", "starved"),
        only=("clocks", "endpoints"),
    ),
}


def take_out(name: str) -> Breakage:
    """Put one in, for the rest of this process."""
    breakage = BREAKAGES[name]
    sources: dict[Path, str] = {}
    for change in breakage.changes:
        path = ROOT / change.file
        text = sources.get(path) or path.read_text("utf-8")
        if text.count(change.old) != 1:
            raise SystemExit(f"simulate: breakage {name}: {change.file} has its piece {text.count(change.old)} times")
        sources[path] = text.replace(change.old, change.new)
    python = {_module(path): (path, text) for path, text in sources.items() if path.suffix == ".py"}
    if already := sorted(python.keys() & sys.modules.keys()):
        raise SystemExit(f"simulate: breakage {name}: {already[0]} is imported already")
    sys.meta_path.insert(0, _Finder(python))
    scripts = {
        path.relative_to(ROOT / "fleet/state/lua").with_suffix("").as_posix(): text
        for path, text in sources.items()
        if path.suffix == ".lua"
    }
    if scripts:
        _replace_scripts(scripts)
    return breakage


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def _replace_scripts(texts: dict[str, str]) -> None:
    from fleet.state import scripts

    read = scripts._read
    scripts._read = lambda name: texts.get(name) or read(name)  # type: ignore[assignment]


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, sources: dict[str, tuple[Path, str]]) -> None:
        self._sources = sources

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._sources:
            return None
        file, text = self._sources[fullname]
        return importlib.util.spec_from_file_location(fullname, file, loader=_Loader(fullname, str(file), text))


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, text: str) -> None:
        super().__init__(fullname, path)
        self._text = text

    def get_code(self, fullname: str) -> Any:
        return self.source_to_code(self._text.encode(), self.path)
