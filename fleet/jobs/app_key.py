"""The key that the pipeline and the processing endpoint share, and the token of a job that is made with it."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fleet.config.settings import Settings
from fleet.errors import InvalidConfig

FILE = "app.key"
_BLOCK_BYTES = 64


def app_key(settings: Settings) -> bytes:
    """The key that is set, else this machine's own, made at first use."""
    if settings.database.app_key:
        return settings.database.app_key.encode()
    return _kept(settings.data_dir / FILE)


def token_of(key: bytes, job_id: str) -> str:
    return hmac.digest(key, job_id.encode(), "sha256").hex()


def token_maker(key: bytes) -> Callable[[str], str]:
    """`token_of` for many jobs of one key, at a third of the cost: the key's part of both hashes is made once."""
    block = (hashlib.sha256(key).digest() if len(key) > _BLOCK_BYTES else key).ljust(_BLOCK_BYTES, b"\0")
    inner, outer = (hashlib.sha256(bytes(byte ^ pad for byte in block)) for pad in (0x36, 0x5C))

    def token(job_id: str) -> str:
        first, second = inner.copy(), outer.copy()
        first.update(job_id.encode())
        second.update(first.digest())
        return second.hexdigest()

    return token


def is_token_of(key: bytes, job_id: str, token: str) -> bool:
    """Takes the same time whatever the token is."""
    return hmac.compare_digest(token_of(key, job_id).encode(), token.encode())


def _kept(file: Path) -> bytes:
    found = _read(file)
    if found:
        return found
    file.parent.mkdir(parents=True, exist_ok=True)
    own = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    descriptor = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as writer:
            writer.write(secrets.token_hex(32).encode())
            writer.flush()
            os.fsync(writer.fileno())
        # A link appears whole or not at all, and if two processes start at once, one wins.
        with suppress(FileExistsError):
            os.link(own, file)
    finally:
        own.unlink()
    found = _read(file)
    if not found:
        raise InvalidConfig(f"{file} is empty: remove it, and a new key is made")
    return found


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes().strip()
    except FileNotFoundError:
        return b""
