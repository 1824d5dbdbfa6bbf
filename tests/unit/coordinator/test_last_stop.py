from __future__ import annotations

from coordinator.last_stop import tracked_under
from tests.unit.coordinator.standins import tracked


def test_only_what_is_tracked_as_its_pool_knew_it_is_handed_back() -> None:
    same, anew = tracked("same", token="1"), tracked("anew", token="5")
    assert tracked_under({"same": "1", "anew": "2", "gone": "3"}, [same, anew, None]) == [same]
