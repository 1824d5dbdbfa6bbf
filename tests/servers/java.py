"""How Java is started for tests: none of them lives for long enough to be worth compiling for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@contextmanager
def quick_java() -> Iterator[None]:
    """All of it that is started meanwhile, also by processes of ours."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", QUICK)
        yield
