"""Which pools there are, read again only when that changed: a hundred workers may follow ten thousand of them."""

from __future__ import annotations

import hashlib

from fleet.state.keys import FleetKeys
from fleet.state.registry import Registry
from fleet.state.scan import pages

UNSIGNED = "0"
"""The mark of a pool that signs nothing."""
_READ_AT_ONCE = 1000
"""Some 2 ms of the reader's time."""


class KnownPools:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._seen: tuple[str, str] | None = None
        self.marks: dict[str, str] = {}
        """Code → its mark: as long as that is the same, so is its secret."""

    async def look(self) -> bool:
        """Whether there is anything new. One small call if there is not."""
        revision, counted = seen = await self._registry.pools_version()
        if seen == self._seen and counted:
            return False
        marks = await self._read(FleetKeys.pool_marks) if counted else {}
        # A syncer of an earlier version sets no marks: a pool without one counts as changed at each revision.
        unknown = f"?{revision}"
        self.marks = {code: marks.get(code, unknown) for code in await self._codes()}
        changed, self._seen = seen != self._seen, seen
        return changed or not counted

    async def _codes(self) -> list[str]:
        found: dict[str, None] = {}
        async for page in pages(self._registry.client.sscan, FleetKeys.pools, count=_READ_AT_ONCE):
            found |= dict.fromkeys(page)
        return list(found)

    async def _read(self, key: str) -> dict[str, str]:
        found: dict[str, str] = {}
        async for page in pages(self._registry.client.hscan, key, count=_READ_AT_ONCE):
            found |= page
        return found


def mark_of(secret: str, secret_file: str) -> str:
    """It reveals nothing of the secret, and is kept in Redis, where the secret is anyway."""
    if not secret and not secret_file:
        return UNSIGNED
    return hashlib.sha256(f"{secret}\0{secret_file}".encode()).hexdigest()[:16]
