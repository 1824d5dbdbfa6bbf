"""Which pools sign their requests, and with what: for workers, and for the server where it delivers jobs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from fleet.alarms import Alarms
from fleet.delivery.sign import Signer
from fleet.errors import InvalidConfig
from fleet.state.connect import Client
from fleet.state.observe import pool_settings
from fleet.state.registry import Registry

MAX_SECRET_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Unsignable:
    """The pool signs, and we cannot: nothing of it may leave unsigned."""

    reason: str


class Signatures:
    """What each pool's requests are signed with; None where they are not."""

    def __init__(self, *, client: Client, alarms: Alarms) -> None:
        self._client = client
        self._registry = Registry(client)
        self._alarms = alarms
        self._revision = ""
        self._known: set[str] = set()
        self._signers: dict[str, Signer | Unsignable] = {}
        self._files: dict[str, tuple[str, tuple[int, int, int]]] = {}
        """Code → the file its secret is in, and which state of it was read."""

    def of(self, code: str) -> Signer | Unsignable | None:
        return self._signers.get(code)

    async def follow(self, codes: Iterable[str]) -> None:
        """Settings are read when there is a new revision or a new pool, files when they have changed."""
        wanted = set(codes)
        revision = await self._registry.revision()
        if revision != self._revision or not wanted <= self._known:
            settings = await pool_settings(self._client, sorted(wanted))
            self._signers = {code: Signer(found.secret) for code, found in settings.items() if found.secret}
            self._files = {code: (found.secret_file, _UNREAD) for code, found in settings.items() if found.secret_file}
            self._revision, self._known = revision, wanted
        for code, (path, read) in self._files.items():
            state = _state(path)
            if state != read:
                self._files[code] = (path, state)
                self._signers[code] = self._read(code, path)

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


_UNREAD = (-1, 0, 0)


def _state(path: str) -> tuple[int, int, int]:
    """Another for another content, as far as the file system tells."""
    try:
        found = os.stat(path)
    except OSError as error:
        return error.errno or 0, 0, 0
    return found.st_ino, found.st_size, found.st_mtime_ns
