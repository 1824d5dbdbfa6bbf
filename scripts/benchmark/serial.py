"""One kept-alive connection, one request in flight, in a process of its own: `python -m benchmark.serial URL TOKEN N`.

The ceiling of what one group can do, since its messages go out one after the other. Prints seconds.
"""

# ruff: noqa: T201 (its output is its answer)

from __future__ import annotations

import sys
import time
from io import BytesIO

import pycurl


def run(url: str, token: str, count: int) -> float:
    """Seconds that `count` requests take one after the other, the first one (the connect) not counted."""
    handle = pycurl.Curl()
    answer = BytesIO()
    headers = [f"Authorization: Bearer {token}", "Content-Type: application/json", "Accept: application/json"]
    handle.setopt(pycurl.URL, url)
    handle.setopt(pycurl.HTTPHEADER, headers)
    handle.setopt(pycurl.TIMEOUT_MS, 10_000)
    handle.setopt(pycurl.WRITEFUNCTION, answer.write)
    began = time.perf_counter()
    for number in range(count + 1):
        handle.setopt(pycurl.POSTFIELDS, f'{{"messageId":"m{number:08d}"}}')
        handle.perform()
        if handle.getinfo(pycurl.RESPONSE_CODE) != 200:
            raise SystemExit(f"the sink answered {handle.getinfo(pycurl.RESPONSE_CODE)}: {answer.getvalue()[:100]!r}")
        answer.seek(0)
        answer.truncate()
        if number == 0:
            began = time.perf_counter()
    return time.perf_counter() - began


if __name__ == "__main__":
    print(run(sys.argv[1], sys.argv[2], int(sys.argv[3])))
