"""Circuit breakers as the server shows and closes them."""

from __future__ import annotations

from typing import Any

from fleet.state.breakers import SharedBreakers
from fleet.state.connect import Client


class BreakerBoard:
    def __init__(self, client: Client) -> None:
        self._shared = SharedBreakers(client)

    async def list(self) -> list[dict[str, Any]]:
        """Those that are not closed, each with its `origin` and `state`."""
        _, found = await self._shared.all()
        return [view.to_json() for view in found]

    async def reset(self, origin: str) -> bool:
        """Close one everywhere; False for one that is closed or unknown."""
        _, found = await self._shared.all()
        if all(view.origin != origin for view in found):
            return False
        await self._shared.reset(origin)
        return True
