"""The judge of the SQS storm sees each fault that it is there for, and takes nothing else for one."""

from __future__ import annotations

from tests.chaos.sqs_crowd import DEAD_FIFO, FIFO, STANDARD
from tests.chaos.sqs_judge import Deleted, Journal, Letter, Shown, judge


def shown(began_s: float, *bodies: str, queue: str = FIFO, ended_s: float | None = None) -> Shown:
    letters = tuple(Letter(f"id of {body}", body) for body in bodies)
    return Shown(queue, began_s, began_s + 0.1 if ended_s is None else ended_s, letters)


def deleted(began_s: float, *bodies: str, queue: str = FIFO) -> list[Deleted]:
    return [Deleted(queue, began_s, began_s + 0.1, Letter(f"id of {body}", body)) for body in bodies]


def journal(*facts: Shown | list[Deleted], accepted: tuple[str, ...] = ("g/0", "g/1"), queue: str = FIFO) -> Journal:
    found = Journal(accepted=dict.fromkeys(accepted, queue))
    for fact in facts:
        if isinstance(fact, Shown):
            found.shown.append(fact)
        else:
            found.deleted += fact
    return found


def test_a_message_that_nobody_deleted_is_lost() -> None:
    assert judge(journal(shown(1, "g/0", "g/1"), deleted(2, "g/0"))).lost == ["g/1"]


def test_a_message_shown_before_an_earlier_one_of_its_group_is_gone_is_inverted() -> None:
    verdict = judge(journal(shown(1, "g/1"), shown(2, "g/0"), deleted(3, "g/0", "g/1")))
    assert verdict.inversions == [f"{FIFO} g: 0 was shown after 1"]
    assert judge(journal(shown(1, "g/1", "g/0"), deleted(3, "g/0", "g/1"))).inversions != []


def test_a_deletion_that_overtakes_an_earlier_one_is_an_inversion() -> None:
    verdict = judge(journal(shown(1, "g/0", "g/1"), deleted(2, "g/1"), deleted(3, "g/0")))
    assert verdict.inversions == [f"{FIFO} g: 0 was deleted after 1"]


def test_dead_letters_have_an_order_too() -> None:
    facts = (shown(1, "g/1", queue=DEAD_FIFO), shown(2, "g/0", queue=DEAD_FIFO))
    assert judge(journal(*facts, deleted(3, "g/0", "g/1", queue=DEAD_FIFO))).inversions != []


def test_a_message_that_comes_again_after_it_was_deleted_is_seen() -> None:
    facts = (shown(1, "g/0", "g/1"), deleted(2, "g/0", "g/1"))
    assert judge(journal(*facts, shown(3, "g/1"))).after_deletion == [f"{FIFO} g/1 (id of g/1)"]
    # Among its dead letters as well.
    assert len(judge(journal(*facts, shown(3, "g/1", queue=DEAD_FIFO))).after_deletion) == 1


def test_a_message_that_was_deleted_in_time_is_not_among_the_dead_letters() -> None:
    seen = (
        shown(1, "g/0", "g/1"),
        shown(4, "g/1", queue=DEAD_FIFO),
        deleted(2, "g/0"),
        deleted(5, "g/1", queue=DEAD_FIFO),
    )
    in_time, late = (Deleted(FIFO, 2.0, 2.1, Letter("id of g/1", "g/1"), held_s=held_s) for held_s in (3.0, 1.5))
    assert len(judge(journal(*seen, [in_time])).after_deletion) == 1
    assert judge(journal(*seen, [late])).is_clean


def test_a_dedup_id_that_made_two_messages_is_seen() -> None:
    other = Shown(FIFO, 1.0, 1.1, (Letter("another id", "g/0"),))
    facts = (shown(1, "g/0", "g/1"), other, deleted(2, "g/0", "g/1"))
    assert judge(journal(*facts)).accepted_twice == ["g/0 as another id, id of g/0"]


def test_a_deletion_by_one_whose_time_was_over_is_seen_unless_it_was_gone_by_then() -> None:
    late = Deleted(FIFO, 5.0, 5.1, Letter("id of g/1", "g/1"), until_s=4.5)
    facts = (shown(1, "g/0", "g/1"), deleted(2, "g/0"))
    assert judge(journal(*facts, [late])).too_late == [f"{FIFO} g/1: 0.500 s"]
    assert judge(journal(*facts, deleted(3, "g/1"), [late])).is_clean


def test_what_may_happen_is_no_fault() -> None:
    facts = (
        shown(1, "g/0", "g/1"),
        # It was given back, and what stands behind it is hidden still.
        shown(2, "g/0"),
        # Asked for before the others were answered.
        shown(1.9, "g/0", ended_s=2.5),
        deleted(3, "g/0"),
        shown(3.2, "g/1"),
        deleted(4, "g/1"),
        # Gone is gone.
        deleted(5, "g/0"),
    )
    assert judge(journal(*facts)).is_clean
    assert judge(journal(shown(1, "s/1"), deleted(2, "s/1"), accepted=("s/1",), queue=STANDARD)).is_clean


def test_an_old_handle_of_what_is_among_the_dead_letters_by_now_says_nothing_of_the_order() -> None:
    facts = (
        shown(1, "g/0", "g/1"),
        shown(2, "g/1"),
        deleted(3, "g/1"),
        shown(3, "g/0", queue=DEAD_FIFO),
        deleted(4, "g/0", queue=DEAD_FIFO),
        deleted(5, "g/0"),
    )
    assert judge(journal(*facts)).is_clean
