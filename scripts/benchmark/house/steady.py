"""A producer at a steady rate: `python -m benchmark.house.steady URI TARGET RATE COUNT GROUPS FILE`.

One message at a time, each when it is due; those that fell due together go together. For each message a line in
FILE: its id, when it was due, when the queue was asked to take it, when it had taken it, in ms since 1970.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import uvloop

from benchmark.house.fill import group_name, message_body, message_id
from fleet.sources.base import Outgoing
from fleet.sources.open import open_publisher


async def produce(uri: str, target: str, rate: float, count: int, groups: int) -> list[str]:
    publisher = open_publisher(uri)
    await publisher.open()
    lines: list[str] = []
    sent = 0
    began_s = time.time()
    while sent < count:
        wait_s = began_s + sent / rate - time.time()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        due = min(count, max(sent + 1, int((time.time() - began_s) * rate) + 1))
        numbers = range(sent, due)
        outgoing = [
            Outgoing(message_id(i), message_body(i, target=target, groups=groups), group_name(i, groups))
            for i in numbers
        ]
        called_s = time.time()
        refusals = await publisher.publish(outgoing)
        accepted_s = time.time()
        if any(refusals):
            raise SystemExit(f"refused: {next(filter(None, refusals))}")
        lines += [
            f"{message_id(i)} {(began_s + i / rate) * 1e3:.3f} {called_s * 1e3:.3f} {accepted_s * 1e3:.3f}"
            for i in numbers
        ]
        sent = due
    await publisher.close()
    return lines


if __name__ == "__main__":
    uri, target, rate, count, groups, file = sys.argv[1:]
    Path(file).write_text("\n".join(uvloop.run(produce(uri, target, float(rate), int(count), int(groups)))))
