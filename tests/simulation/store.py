"""Redis in memory: `store.lua` and what it names, in a LuaJIT that runs the .lua files of the fleet as they are.

fakeredis copies every argument and every answer between two languages; here a script and the data it works on share
one. Answers cross over as JSON, which both sides read and write quickly. Time stands still until somebody sets it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from lupa.luajit21 import LuaRuntime
from redis import exceptions

from fleet.state.refusals import Parser

_decode = msgspec.json.Decoder().decode
MOST_ON_STACK = 4000
_FOLDER = Path(__file__).parent


class Store:
    """One Redis server: what it holds, and what it publishes."""

    def __init__(self) -> None:
        self.lua = LuaRuntime(encoding="utf-8", unpack_returned_tuples=True)
        self.s: Any = self.lua.execute((_FOLDER / "store.lua").read_text("utf-8"))
        for more in ("lists.lua", "sorted_sets.lua", "calls.lua"):
            self.lua.execute((_FOLDER / more).read_text("utf-8"), self.s)
        self._evalsha: Any = self.s.evalsha
        self._command: Any = self.s.command
        self.now_us = 0.0
        self.published: list[tuple[str, str]] = []
        self.has_changed = False
        """Whether anything may have changed for the invariants to look at since this was last cleared."""

    def set_time_us(self, now_us: float) -> None:
        self.now_us = now_us

    def command(self, name: str, *arguments: str | int | float) -> Any:
        """The answer as Redis would give it; what redis-py would raise is raised."""
        return self._heard(*self._command(self.now_us, name, *(_text(argument) for argument in arguments)))

    def evalsha(self, digest: str, count: int, arguments: Sequence[Any]) -> Any:
        texts = [argument if type(argument) is str else _text(argument) for argument in arguments]
        if len(texts) < MOST_ON_STACK:
            return self._heard(*self._evalsha(self.now_us, digest, count, *texts))
        packed = "".join(f"{text}\0" for text in texts)
        return self._heard(*self.s.evalsha_of_text(self.now_us, digest, count, packed))

    def _heard(self, ok: bool, answer: str, published: str | None, changed: bool) -> Any:
        if published is not None:
            self.published += map(tuple, _decode(published))
        if changed:
            self.has_changed = True
        if not ok:
            raise error_of(answer)
        return _decode(answer)

    def eval(self, source: str, count: int, arguments: Sequence[Any]) -> Any:
        digest = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
        if (problem := self.s.load(digest, source, "script")) is not None:
            raise exceptions.ResponseError(str(problem))
        return self.evalsha(digest, count, arguments)

    def forget_scripts(self) -> None:
        self.s.scripts = self.lua.table()

    def take_published(self) -> list[tuple[str, str]]:
        published, self.published = self.published, []
        return published

    def all_keys(self) -> list[str]:
        self.has_changed = True  # keys may have expired by now
        return list(_decode(self.s.all_keys(self.now_us)))

    def count(self) -> int:
        self.has_changed = True
        return int(self.s.count(self.now_us))

    def snapshot(self) -> Any:
        return self.s.snapshot()

    def restore(self, kept: Any) -> None:
        self.s.restore(kept)
        self.has_changed = True

    def wipe(self) -> None:
        self.command("FLUSHALL")

    @property
    def full(self) -> bool:
        return bool(self.s.full)

    @full.setter
    def full(self, full: bool) -> None:
        self.s.full = full

    @property
    def readonly(self) -> bool:
        return bool(self.s.readonly)

    @readonly.setter
    def readonly(self, readonly: bool) -> None:
        self.s.readonly = readonly


def error_of(text: str) -> Exception:
    """As a connection of ours raises it."""
    return Parser.parse_error(text)


def _text(argument: Any) -> str:
    if type(argument) is str:
        return argument
    if isinstance(argument, bytes):
        return argument.decode()
    return repr(argument) if isinstance(argument, float) else str(argument)
