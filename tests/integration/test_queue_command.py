"""`fleet queue purge`, and `fleet send` into a queue of our own: what they say, and what the queue then holds."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

TARGET = ("--target", "http://127.0.0.1:9/")
Run = Callable[..., tuple[int, str, str]]


def purged(fleet: Run, name: str) -> int:
    code, out, err = fleet("queue", "purge", name, "--yes", "--json")
    document = json.loads(out)
    assert (code, err, document["queue"]) == (0, "", name)
    return int(document["purged"])


def test_a_purge_asks_first_then_empties_the_queue_and_no_other(fleet: Run) -> None:
    for name, count in (("orders", 3), ("other", 1)):
        assert fleet("send", f"fleet://{name}", *TARGET, "--count", str(count)) == (0, f"{count} accepted\n", "")
    code, out, err = fleet("queue", "purge", "fleet://orders")
    assert (code, out) == (2, "")
    assert "3 messages of fleet://orders would be gone for good; add --yes" in err
    assert fleet("queue", "purge", "fleet://orders", "--yes") == (0, "3 messages are gone.\n", "")
    assert purged(fleet, "fleet://orders") == 0
    assert purged(fleet, "fleet://other") == 1


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sqlite:///q.db?queue=a", "not a queue of our own"),
        ("fleet://a/b", "needs a name"),
        ("orders", "no queue orders is configured"),
    ],
)
def test_what_cannot_be_purged_is_one_line(fleet: Run, name: str, words: str) -> None:
    code, out, err = fleet("queue", "purge", name, "--yes")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert words in err


def test_what_was_purged_is_dropped_if_it_is_sent_again_soon_unless_under_another_dedup_id(fleet: Run) -> None:
    body = json.dumps({"id": "purged", "mediationTarget": "http://127.0.0.1:9/"})
    for more, held in (((), 1), ((), 0), (("--dedup-id", "another"), 1)):
        assert fleet("send", "fleet://orders", "--body", body, *more) == (0, "1 accepted\n", "")
        assert purged(fleet, "fleet://orders") == held


def test_a_message_sent_twice_is_there_once_by_its_id_or_by_the_dedup_id_that_was_given(fleet: Run) -> None:
    def send(name: str, *more: str) -> None:
        body = json.dumps({"id": name, "mediationTarget": "http://127.0.0.1:9/"})
        assert fleet("send", "fleet://orders", "--body", body, *more) == (0, "1 accepted\n", "")

    for arguments in (["a"], ["a"], ["b", "--dedup-id", "d"], ["c", "--dedup-id", "d"], ["a", "--dedup-id", "e"]):
        send(*arguments)
    assert purged(fleet, "fleet://orders") == 3
    code, out, err = fleet("send", "fleet://orders", *TARGET, "--count", "2", "--dedup-id", "d")
    assert (code, out) == (2, "")
    assert "--dedup-id goes with one message" in err
