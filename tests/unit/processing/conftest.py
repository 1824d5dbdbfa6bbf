"""Time jumps here."""

from tests.jumping import pytest_asyncio_loop_factories as pytest_asyncio_loop_factories
