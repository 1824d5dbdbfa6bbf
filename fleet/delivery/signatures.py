"""Which pools sign their requests, and with what: for workers, and for the server when it delivers jobs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fleet.alarms import Alarms
from fleet.errors import InvalidConfig, StateUnavailable
from fleet.sign import Signer
from fleet.state.connect import Client
from fleet.state.known_pools import UNSIGNED
from fleet.state.observe import secrets_of

MAX_SECRET_BYTES = 64 * 1024
_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class Unsignable:
    """The pool signs, and we cannot: none of its requests may leave unsigned."""

    reason: str


class Signatures:
    """What each pool's requests are signed with; None if they are not."""

    def __init__(self, *, client: Client, alarms: Alarms) -> None:
        self._client = client
        self._alarms = alarms
        self._marks: Mapping[str, str] = {}
        self._signers: dict[str, Signer | Unsignable] = {}
        self._files: dict[str, tuple[str, tuple[int, int, int]]] = {}
        """Code → the file its secret is in, and which state of it was read."""
        self.unread: set[str] = set()
        """Pools that sign, but we do not know yet with what."""

    def of(self, code: str) -> Signer | Unsignable | None:
        return self._signers.get(code)

    async def follow(self, marks: Mapping[str, str]) -> None:
        """Read the settings of pools whose mark changed (`known_pools.py`), and secret files that changed.

        If a node of a Cluster does not answer, its pools are in `unread`, and asked for again with the next call.
        Some hundred pools at a time: the caller has other things to do on the same loop.
        """
        if marks is not self._marks:  # one that was passed in is never changed
            for code in (self._marks.keys() | self.unread) - marks.keys():
                self._forget(code)
            changed = [code for code, mark in marks.items() if self._marks.get(code) != mark]
            self.unread = set()
            for first in range(0, len(changed), _AT_ONCE):
                await self._look_at(changed[first : first + _AT_ONCE], marks)
            unread = self.unread
            self._marks = {code: mark for code, mark in marks.items() if code not in unread} if unread else marks
        for number, (code, (path, read)) in enumerate(list(self._files.items()), start=1):
            state = _state(path)
            if state != read:
                self._files[code] = (path, state)
                self._signers[code] = self._read(code, path)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _look_at(self, changed: list[str], marks: Mapping[str, str]) -> None:
        found = await self._secrets_of([code for code in changed if marks[code] != UNSIGNED])
        for code in changed:
            if code in self.unread:
                # Until then it signs with what it signed with before.
                self._signers.setdefault(code, Unsignable(f"what pool {code} signs with cannot be read from Redis"))
                continue
            self._forget(code)
            secret, secret_file = found.get(code, ("", ""))
            if secret:
                self._signers[code] = Signer(secret)
            if secret_file:
                self._files[code] = (secret_file, _state(secret_file))
                self._signers[code] = self._read(code, secret_file)

    async def _secrets_of(self, codes: Sequence[str]) -> dict[str, tuple[str, str]]:
        try:
            return await secrets_of(self._client, codes)
        except StateUnavailable:
            answers = await asyncio.gather(*(secrets_of(self._client, [c]) for c in codes), return_exceptions=True)
        found: dict[str, tuple[str, str]] = {}
        for code, answer in zip(codes, answers, strict=True):
            if isinstance(answer, StateUnavailable):
                self.unread.add(code)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found |= answer
        return found

    def _forget(self, code: str) -> None:
        self._signers.pop(code, None)
        self._files.pop(code, None)

    def _read(self, code: str, path: str) -> Signer | Unsignable:
        try:
            with open(path, encoding="utf-8") as file:
                return Signer(file.read(MAX_SECRET_BYTES))
        except OSError as error:
            why = error.strerror or type(error).__name__
        except UnicodeDecodeError:
            why = "it is not text"
        except InvalidConfig as error:
            why = str(error)
        reason = f"the signing secret of pool {code} in {path} cannot be used: {why}"
        self._alarms.add("CONFIGURATION", "ERROR", f"{reason}; nothing of the pool is sent meanwhile")
        return Unsignable(reason)


def _state(path: str) -> tuple[int, int, int]:
    """Differs for different content, as far as the file system tells."""
    try:
        found = os.stat(path)
    except OSError as error:
        return error.errno or 0, 0, 0
    return found.st_ino, found.st_size, found.st_mtime_ns
