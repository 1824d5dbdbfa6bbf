"""uvicorn, as this process runs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette

STOP_WITHIN_S = 5


class UvicornServer(uvicorn.Server):
    def __init__(self, app: Starlette) -> None:
        super().__init__(_options(app))

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are ours: the process says goodbye to the fleet first."""
        yield


def _options(app: Starlette) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        # A line a request would bury what matters, and a query may hold what is nobody's business.
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=STOP_WITHIN_S,
    )
