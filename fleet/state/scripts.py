"""Lua scripts as files: loaded once, called by their digest, their contract read from their header.

The prelude stands before each script. If its header says `WITH`, so do the files of `lua/with/` that it names.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Hashable, Sequence
from functools import cache, lru_cache
from importlib import resources
from typing import Any

from redis.exceptions import NoScriptError

from fleet.metrics.counters import Counters
from fleet.state.connect import Client, translated

call_times = Counters()
"""How long this process waited for each script, failed calls included; its heartbeat tells."""
_FAMILIES_KEPT = 1024
SEP = "\x1f"
"""Separates the fields of our records; no validated field can contain it."""


class Script:
    """One script. `keys` names what its KEYS are, in order, as its header says."""

    def __init__(self, name: str) -> None:
        self.name = name
        parts = ["prelude", *(f"with/{part}" for part in _header(_read(name), "WITH")), name]
        self.source = "\n".join(map(_read, parts))
        self.digest = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        self.keys = _header(_read(name), "KEYS")
        self.arguments = _header(_read(name), "ARGV")
        # Some fifteen names are put together for a call; those of the families in use are kept.
        self.keys_of = lru_cache(maxsize=_FAMILIES_KEPT)(self._keys_of)

    def _keys_of(self, family: Hashable) -> tuple[str, ...]:
        """The KEYS, taken by name from a key family."""
        return tuple(str(getattr(family, key)) for key in self.keys)

    async def __call__(self, client: Client, keys: Sequence[str], arguments: Sequence[str | int]) -> Any:
        started_s = time.perf_counter()
        try:
            with translated():
                try:
                    return await client.evalsha(self.digest, len(keys), *keys, *arguments)
                except NoScriptError:
                    # The server restarted or failed over, and its script cache is gone. EVAL fills it again.
                    return await client.eval(self.source, len(keys), *keys, *arguments)
        finally:
            call_times.observe("redis_call", self.name, time.perf_counter() - started_s)


@cache
def script(name: str) -> Script:
    return Script(name)


@cache
def _read(name: str) -> str:
    return resources.files("fleet.state").joinpath("lua", f"{name}.lua").read_text("utf-8")


def _header(source: str, part: str) -> tuple[str, ...]:
    found = re.search(rf"^-- {part} (.*)$", source, re.MULTILINE)
    if found is None:
        return ()
    words = found.group(1).split(" …")[0].split(",")[0]
    return tuple(words.split())


def number(part: str, name: str) -> int:
    """A number that stands in a script, and that this process goes by as well."""
    found = re.search(rf"^local {name} = (\d+)", _read(part), re.MULTILINE)
    assert found is not None
    return int(found.group(1))


def names() -> list[str]:
    """Every script there is, for tests that look at all of them."""
    folder = resources.files("fleet.state").joinpath("lua")
    own = [f"own/{file.name}" for file in folder.joinpath("own").iterdir()]
    files = [file.name for file in folder.iterdir() if file.name != "prelude.lua"]
    return sorted(name.removesuffix(".lua") for name in [*files, *own] if name.endswith(".lua"))
