"""One door of the storm as a process: `python -m tests.chaos.sqs_door REDIS_URL PORT`."""

from __future__ import annotations

import sys
from dataclasses import replace

from fleet.broker.sqs.main import run
from fleet.config.settings import Settings
from fleet.logs import set_up


def main() -> int:
    url, port = sys.argv[1:]
    base = Settings()
    settings = replace(base, redis=replace(base.redis, url=url), sqs=replace(base.sqs, port=int(port)))
    set_up(level="INFO", process=f"door-{port}")
    return run(settings)


if __name__ == "__main__":
    sys.exit(main())
