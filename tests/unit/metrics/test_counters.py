"""What a process counted, and which of it is new."""

from __future__ import annotations

from fleet.metrics.counters import Counters


def test_what_was_taken_is_not_taken_again_and_stays_counted() -> None:
    counters = Counters()
    counters.add("pool", "P", "SUCCESS", 2)
    assert counters.take(10) == [(("pool", "P"), {"SUCCESS": 2})]
    assert counters.take(10) == []
    counters.add("pool", "P", "SUCCESS")
    counters.add("pool", "P", "ms", 7)
    assert counters.take(10) == [(("pool", "P"), {"SUCCESS": 1, "ms": 7})]
    assert counters.of(("pool", "P")) == {"SUCCESS": 3, "ms": 7}


def test_what_changed_first_is_taken_first_and_no_more_than_is_asked_for() -> None:
    counters = Counters()
    for code in "ABCA":
        counters.add("pool", code, "SUCCESS")
    assert [key[1] for key, _ in counters.take(2)] == ["A", "B"]
    counters.add("pool", "A", "SUCCESS")
    assert counters.pending == 2
    assert [key[1] for key, _ in counters.take(2)] == ["C", "A"]


def test_after_a_loss_all_is_taken_again_once_with_what_came_since() -> None:
    counters = Counters()
    for code in "AB":
        counters.add("pool", code, "SUCCESS")
    counters.take(10)
    counters.add("pool", "B", "SUCCESS")
    counters.take_again()
    assert dict(counters.take(1)) == {("pool", "B"): {"SUCCESS": 2}}
    # Lost once more, half-way.
    counters.take_again()
    assert dict(counters.take(10)) == {("pool", "A"): {"SUCCESS": 1}, ("pool", "B"): {"SUCCESS": 2}}
    assert counters.of(("pool", "B")) == {"SUCCESS": 2}
    assert counters.pending == 0


def test_what_somebody_else_counted_is_added_by_what_is_new_of_it() -> None:
    counters = Counters()
    counters.put("queue", "q", {"acked": 3})
    counters.take(10)
    counters.put("queue", "q", {"acked": 5, "nacked": 0})
    assert counters.take(10) == [(("queue", "q"), {"acked": 2})]
    counters.put("queue", "q", {"acked": 5})
    assert counters.take(10) == []


async def test_a_copy_of_all_has_each_key_once_however_many_there_are() -> None:
    counters = Counters()
    for number in range(1000):
        counters.add("pool", str(number), "SUCCESS")
    counters.take(500)
    counters.add("pool", "0", "SUCCESS")
    copied = await counters.all()
    assert len(copied) == 1000
    assert copied["pool", "0"] == {"SUCCESS": 2}
