"""The digests a client compares with its own: of a body, and of attributes as AWS puts them in a row."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import md5
from typing import Any

SYSTEM = ("AWSTraceHeader",)
"""The system attributes a sender can set. They have a digest of their own and are no part of the other one."""


def of_body(body: bytes) -> str:
    return md5(body, usedforsecurity=False).hexdigest()


def of_attributes(attributes: Mapping[str, Mapping[str, Any]]) -> str:
    """Sorted by name, each as name, type, a byte that tells text (1) from bytes (2), and value. Empty for none."""
    if not attributes:
        return ""
    row = bytearray()
    for name in sorted(attributes):
        value = attributes[name]
        data_type: str = value["DataType"]
        binary = data_type.startswith("Binary")
        content = value["BinaryValue"] if binary else value["StringValue"].encode()
        _append(row, name.encode())
        _append(row, data_type.encode())
        row += b"\x02" if binary else b"\x01"
        _append(row, content)
    return md5(row, usedforsecurity=False).hexdigest()


def of_system_attributes(attributes: Mapping[str, Mapping[str, Any]]) -> str:
    return of_attributes({name: attributes[name] for name in SYSTEM if name in attributes})


def _append(row: bytearray, part: bytes) -> None:
    row += len(part).to_bytes(4, "big")
    row += part
