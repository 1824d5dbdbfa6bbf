"""The messages of a run, the same for every peer."""

from __future__ import annotations

from collections.abc import Iterator


def messages(url: str, token: str, count: int, groups: int) -> Iterator[dict[str, str]]:
    for number in range(count):
        yield {
            "id": f"m{number:08d}",
            "poolCode": "BENCH",
            "authToken": token,
            "mediationType": "HTTP",
            "mediationTarget": url,
            "messageGroupId": f"g{number % groups}",
        }
