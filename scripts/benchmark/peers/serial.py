"""One kept-alive connection, one request in flight: `python -m benchmark.peers.serial URL TOKEN N [libcurl|fleet]`.

The ceiling of what one group can do, since its messages go out one after the other; with bare libcurl, or with the
client that Fleet's workers use. Prints seconds.
"""

# ruff: noqa: T201 (its output is its answer)

from __future__ import annotations

import asyncio
import sys
import time
from io import BytesIO

import pycurl
import uvloop

from fleet.delivery.client import HttpClient
from fleet.delivery.reply import Reply


def _headers(token: str) -> list[str]:
    return [f"Authorization: Bearer {token}", "Content-Type: application/json", "Accept: application/json"]


def run(url: str, token: str, count: int) -> float:
    """Seconds that `count` requests take one after the other, the first one (the connect) not counted."""
    handle = pycurl.Curl()
    answer = BytesIO()
    handle.setopt(pycurl.URL, url)
    handle.setopt(pycurl.HTTPHEADER, _headers(token))
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


async def run_with_fleets_client(url: str, token: str, count: int) -> float:
    """The same through Fleet's HTTP client: the next request is made where a worker makes it, in the callback."""
    client, headers = HttpClient(), _headers(token)
    over: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    began, number = time.perf_counter(), 0

    def post() -> None:
        client.post(url, headers, b'{"messageId":"m%08d"}' % number, timeout_ms=10_000, done=on_reply)

    def on_reply(reply: Reply) -> None:
        nonlocal began, number
        if reply.status != 200:
            over.set_exception(SystemExit(f"the sink answered {reply.status}"))
            return
        if number == 0:
            began = time.perf_counter()
        number += 1
        if number > count:
            over.set_result(time.perf_counter() - began)
        else:
            post()

    post()
    try:
        return await over
    finally:
        client.close()


if __name__ == "__main__":
    address, secret, messages = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if sys.argv[4:] == ["fleet"]:
        print(uvloop.run(run_with_fleets_client(address, secret, messages)))
    else:
        print(run(address, secret, messages))
