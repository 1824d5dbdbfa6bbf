"""How long a broker may say nothing."""

from __future__ import annotations

import asyncio

from fleet.sources.activemq.address import parse_address
from fleet.sources.activemq.line import StompLine

BEAT_MS = 400


async def test_a_broker_that_beats_at_every_second_tick_keeps_its_line_and_one_that_stops_loses_it() -> None:
    """As ActiveMQ does after a word that stands right behind a tick; and a little late."""
    beats = asyncio.Event()

    async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\0")
        writer.write(f"CONNECTED\nversion:1.2\nheart-beat:{BEAT_MS},{BEAT_MS}\n\n\0".encode())
        for _ in range(2):
            await asyncio.sleep(2.25 * BEAT_MS / 1000)
            writer.write(b"\n")
        beats.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(broker, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        line = StompLine(address=parse_address(f"stomp://127.0.0.1:{port}/q"), heartbeat_ms=BEAT_MS)
        await line.open()
        try:
            await beats.wait()
            assert line.is_up
            async with asyncio.timeout(4 * BEAT_MS / 1000):
                await line.lost.wait()
            assert line.why_lost == "no sign of life"
        finally:
            await line.close()
