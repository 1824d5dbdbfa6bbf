"""Time jumps: when nothing is ready the event loop is at the next timer. For folders whose tests ask no real server.

A folder's `conftest.py` imports the hook.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.simulation.loop import Loop


class JumpingLoop(Loop):
    def close(self) -> None:
        super().close()
        assert self.errors == [], "a callback failed"


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], Loop]]:
    return {"jumping": JumpingLoop}
