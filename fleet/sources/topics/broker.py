"""The broker as an adapter needs it: opened and closed, its errors as those of a queue."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator

from fleet.broker.core import Broker
from fleet.broker.errors import BrokerError, Exhausted, Unavailable, Unsure
from fleet.errors import (
    InvalidConfig,
    SourceError,
    SourceFull,
    SourceUnavailable,
    StateError,
    StateFull,
    StateUnavailable,
)


class Connection:
    def __init__(self, *, uri: str, redis_url: str) -> None:
        if not redis_url:
            raise InvalidConfig(f"{uri} is kept in Redis: name one with --redis or FLEET_REDIS_URL")
        self._uri = uri
        self._url = redis_url
        self._broker: Broker | None = None
        self._stack = contextlib.AsyncExitStack()

    @contextlib.asynccontextmanager
    async def opening(self) -> AsyncIterator[Broker]:
        """It stays open, unless what is asked first fails."""
        try:
            with as_source_errors(self._uri):
                if self._broker is None:
                    self._broker = await self._stack.enter_async_context(Broker.connected(self._url))
                yield self._broker
        except BaseException:
            await self.close()
            raise

    @property
    def opened(self) -> Broker:
        if self._broker is None:
            raise SourceUnavailable(f"{self._uri} is closed")
        return self._broker

    async def close(self) -> None:
        self._broker = None
        await self._stack.aclose()


@contextlib.contextmanager
def as_source_errors(uri: str) -> Iterator[None]:
    try:
        yield
    except (Unavailable, Unsure, StateUnavailable) as error:
        raise SourceUnavailable(f"{uri}: {error}") from error
    except (Exhausted, StateFull) as error:
        raise SourceFull(f"{uri}: {error}") from error
    except (BrokerError, StateError) as error:
        raise SourceError(f"{uri}: {error}") from error
