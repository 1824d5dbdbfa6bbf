"""A process that is stopped while it asks Redis for the first time."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE

from tests.servers.local import running_redis

TIMEOUT_S = 1.0
_ASK = f"""
import asyncio, sys
from fleet.state.connect import connect
async def ask():
    print("asks", flush=True)
    await (await connect(sys.argv[1], timeout_s={TIMEOUT_S})).aclose()
    print("connected", flush=True)
asyncio.run(ask())
"""


async def test_who_was_stopped_itself_does_not_take_redis_for_silent() -> None:
    with running_redis() as redis:
        redis.server.process.send_signal(signal.SIGSTOP)
        asker = await asyncio.create_subprocess_exec(sys.executable, "-c", _ASK, redis.url, stdout=PIPE, stderr=PIPE)
        assert asker.stdout is not None
        async with asyncio.timeout(30):
            assert await asker.stdout.readline() == b"asks\n"
            await asyncio.sleep(TIMEOUT_S / 4)
            asker.send_signal(signal.SIGSTOP)
            redis.server.process.send_signal(signal.SIGCONT)
            await asyncio.sleep(TIMEOUT_S * 2)
            asker.send_signal(signal.SIGCONT)
            said, failure = await asker.communicate()
        assert (said, asker.returncode) == (b"connected\n", 0), failure.decode()
