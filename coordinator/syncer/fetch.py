"""The bytes of a router configuration, from a URL or a file."""

from __future__ import annotations

import time
from pathlib import Path

import requests

from fleet.config.router import shown_uri
from fleet.errors import InvalidConfig

MAX_CONFIG_BYTES = 4 * 1024 * 1024
FETCH_TIMEOUT_S = 10.0
_CHUNK_BYTES = 64 * 1024


def fetch(source: str, *, timeout_s: float = FETCH_TIMEOUT_S) -> bytes:
    """The bytes of a URL or a file. InvalidConfig says in one line, without passwords, why there are none."""
    if "://" in source:
        return _fetch_url(source, timeout_s)
    try:
        with Path(source).open("rb") as file:
            data = file.read(MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise InvalidConfig(f"{source}: {error.strerror}") from error
    return _sized(source, data)


def _fetch_url(url: str, timeout_s: float) -> bytes:
    shown = shown_uri(url)
    deadline = time.monotonic() + timeout_s
    # Proxies of the environment are ignored. Each is named here as none: requests looks up those that are not named.
    no_proxies = dict.fromkeys(("http", "https", "all"), "")
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    try:
        with requests.get(url, stream=True, timeout=timeout_s, proxies=no_proxies, headers=headers) as response:
            if response.status_code != requests.codes.ok:
                raise InvalidConfig(f"{shown}: answered {response.status_code}")
            data = b""
            # read1 returns what has arrived: an endpoint that trickles meets our deadline, not a new one at each byte.
            while chunk := response.raw.read1(_CHUNK_BYTES, decode_content=True):
                data += chunk
                _sized(shown, data)
                if time.monotonic() > deadline:
                    raise InvalidConfig(f"{shown}: did not end within {timeout_s:g} s")
    except requests.Timeout as error:
        raise InvalidConfig(f"{shown}: did not answer within {timeout_s:g} s") from error
    except requests.ConnectionError as error:
        raise InvalidConfig(f"{shown}: cannot be reached") from error
    except (requests.RequestException, OSError, ValueError) as error:
        # Its text may quote the whole URL, its type does not.
        raise InvalidConfig(f"{shown}: cannot be fetched ({type(error).__name__})") from error
    return data


def _sized(source: str, data: bytes) -> bytes:
    if len(data) > MAX_CONFIG_BYTES:
        raise InvalidConfig(f"{source}: is larger than {MAX_CONFIG_BYTES} bytes")
    return data
