"""Names in a mapping that a caller wrote: ours in snake_case, or those of seed 001 in camelCase."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fleet.broker.errors import InvalidArgument
from fleet.config.router import nearest

_HUMP = re.compile(r"(?<=[a-z0-9])[A-Z]")


def in_our_words(given: object, names: Mapping[str, str], what: str) -> dict[str, Any]:
    """The values under our names. `names`: what may be written in snake_case, and our name of it.

    None is as good as absent, like the seed's `undefined`.
    """
    if not isinstance(given, Mapping):
        raise InvalidArgument(f"{what} must be a mapping, is {type(given).__name__}")
    found: dict[str, Any] = {}
    for written, value in given.items():
        name = names.get(written) or names.get(_in_snake_case(written))
        if name is None:
            raise InvalidArgument(f"{what}: unknown name {written!r}{nearest(_in_snake_case(written), names)}")
        if value is None:
            continue
        if name in found:
            raise InvalidArgument(f"{what}: {name} is given twice, the second time as {written!r}")
        found[name] = value
    return found


def _in_snake_case(name: object) -> str:
    return _HUMP.sub(lambda hump: "_" + hump[0].lower(), str(name))
