"""`scripts/test`, once everything is installed: run what was asked for, and report."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
from pathlib import Path

from tests.suites.lanes import Lanes, say
from tests.suites.parts import parts_of, whole
from tests.suites.report import report

LANES_PER_CORE = 2


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/test")
    parser.add_argument("--suites", required=True, type=str.split)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("options", nargs="*", help="of pytest")
    asked = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    at_a_time = {"jobs": asked.jobs} if asked.jobs else {"jobs": LANES_PER_CORE * cores, "cores": cores}
    parts = whole(asked.suites) if asked.jobs == 1 else parts_of(asked.suites)
    with tempfile.TemporaryDirectory(prefix="fleet-suites-") as folder:
        lanes = Lanes(parts, asked.options, folder=Path(folder), **at_a_time)
        try:
            asyncio.run(_until_told(lanes))
        except asyncio.CancelledError:
            say("scripts/test: stopped")
            return 128 + signal.SIGINT
        return 0 if report(lanes.runs, asked.suites, took_s=lanes.took_s) else 1


async def _until_told(lanes: Lanes) -> None:
    """Told to end, it first ends what it has started."""
    running = asyncio.current_task()
    assert running is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    await lanes.run()


if __name__ == "__main__":
    sys.exit(main())
