"""What a driver says while it works, with a clock that the test turns."""

from __future__ import annotations

from spark.progress import Progress


class Desk:
    """A log or a terminal, and the time."""

    def __init__(self, *, terminal: bool = False) -> None:
        self.now_s = 100.0
        self.lines: list[str] = []
        self.shown: list[str] = []
        self.progress = Progress(
            say=self.lines.append, show=self.shown.append if terminal else None, every_s=5.0, clock=lambda: self.now_s
        )

    def epoch(self, number: int, *, jobs: int = 100, waiting: int = 0, lag_s: float = 0.4) -> None:
        self.progress.epoch(number, jobs=jobs, took_s=0.5, waiting=waiting, lag_s=lag_s)


def test_the_first_epoch_is_told_at_once_and_the_next_ones_together() -> None:
    desk = Desk()
    desk.epoch(1)
    assert desk.lines == ["epoch 1: 100 jobs published, 200/s, lag 0.4 s"]
    for number in (2, 3):
        desk.now_s += 2
        desk.epoch(number)
    assert len(desk.lines) == 1
    desk.now_s += 2
    desk.epoch(4, waiting=2500, lag_s=61.25)
    assert desk.lines[1:] == ["epochs 2–4: 300 jobs published, 200/s, 2,500 wait, the oldest for 61.2 s"]


def test_what_was_held_back_is_told_when_it_rests_and_at_the_end() -> None:
    desk = Desk()
    desk.epoch(1)
    desk.epoch(2)
    desk.progress.rest()
    assert len(desk.lines) == 1
    desk.now_s += 5
    desk.progress.rest()
    desk.progress.rest()
    assert desk.lines[1:] == ["epoch 2: 100 jobs published, 200/s, lag 0.4 s"]
    desk.epoch(3)
    desk.progress.flush()
    desk.progress.flush()
    assert desk.lines[2:] == ["epoch 3: 100 jobs published, 200/s, lag 0.4 s"]


def test_what_waits_for_its_groups_stands_behind_the_epoch_before_it() -> None:
    desk = Desk()
    desk.epoch(1)
    desk.epoch(2)
    desk.progress.held(waiting=7, lag_s=12, why="for others of their groups")
    desk.progress.flush()
    assert desk.lines[1:] == [
        "epoch 2: 100 jobs published, 200/s, 7 wait for others of their groups, the oldest for 12.0 s"
    ]


def test_a_log_is_told_once_a_minute_that_nothing_can_go_and_not_of_every_step() -> None:
    desk = Desk()
    for _ in range(1300):
        desk.progress.step("planning")
        desk.progress.held(waiting=7, lag_s=12, why="for room in the queue")
        desk.now_s += 0.1
    assert desk.lines == ["7 wait for room in the queue, the oldest for 12.0 s"] * 3


def test_a_terminal_has_one_line_that_says_what_is_done_and_what_goes_on() -> None:
    desk = Desk(terminal=True)
    desk.progress.step("epoch 1: publishing 100")
    desk.epoch(1)
    desk.epoch(2)
    desk.progress.step("epoch 3: publishing 100")
    desk.progress.flush()
    assert desk.lines == []
    assert desk.shown == [
        "epoch 1: publishing 100 …",
        "epoch 1: 100 jobs published, 200/s, lag 0.4 s",
        "epochs 1–2: 200 jobs published, 200/s, lag 0.4 s",
        "epochs 1–2: 200 jobs published, 200/s, lag 0.4 s; epoch 3: publishing 100 …",
    ]
