from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from coordinator.duties import found_in_disorder


@pytest.mark.parametrize(
    ("crash_wait_ms", "was_released", "disorder"),
    [(30_000, False, True), (30_000, True, False), (0, False, False)],
    ids=["its owner crashed", "its owner ended well", "a source that holds groups"],
)
def test_more_may_be_out_than_is_tracked_after_a_crash_where_a_source_holds_no_groups(
    crash_wait_ms: int, was_released: bool, disorder: bool
) -> None:
    source = cast(Any, SimpleNamespace(crash_wait_ms=crash_wait_ms))
    assert found_in_disorder(source, cast(Any, SimpleNamespace(was_released=was_released))) is disorder
