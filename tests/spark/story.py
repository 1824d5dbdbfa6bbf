"""What happens to the whole pipeline, wherever its drivers run: five are killed, and a server, and one stands by."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from tests.acceptance.fleet_command import Process
from tests.spark.works import STAYS_MS, Works, judge, tell

PUBLISHING = "feed-publishing:kill-driver:1"
PLACES = ("feed-marked:kill:1", "feed-frozen:kill:1", PUBLISHING, "feed-published:kill:1")
"""The feed's failpoints: at the end of the epoch, after the claim, in the middle of publishing, before the mark."""


def killed_and_judged(works: Works, jobs: int, groups: int, *, places: Sequence[str] = PLACES) -> None:
    """Drivers at each place and once at random inside publish, the server in mid-delivery; then what failed is healed.

    The first driver's place must let some of its first epoch be delivered.
    """
    worker = works.start_router()
    portion = jobs // 2 // (len(places) + 1)
    works.add(jobs - portion * (len(places) + 1), groups=groups)
    server, leader = works.start_server(), works.start_driver(places[0])
    works.says(leader, "leading")
    in_doubt = _kill_in_mid_delivery(works, server)
    for place, following in zip(places, (*places[1:], ""), strict=True):
        if place == PUBLISHING:
            # Asleep until all of the epoch is in the queue: what it had delivered would not be published again.
            worker.popen.send_signal(signal.SIGSTOP)
        successor = works.start_driver(following)
        works.wait(lambda leader=leader: leader.popen.poll() is not None, f"no kill at {place}")  # type: ignore[misc]
        assert leader.popen.returncode == leader.killed, leader.text()
        tell(works, f"killed at {place}")
        left_behind = works.newest_epoch().number
        works.add(portion, groups=groups)
        works.says(successor, "leading")
        if place == PUBLISHING:
            works.wait(lambda number=left_behind: not works.is_in_publish(number), "not published")  # type: ignore[misc]
            worker.popen.send_signal(signal.SIGCONT)
        leader = successor
    last = works.start_driver(ttl_ms=STAYS_MS)
    works.says(last, "standing by")
    _kill_in_publish(works, leader)
    works.add(portion, groups=groups)
    works.says(last, "leading")
    idle = works.start_driver()
    works.wait(works.settled, "not settled", limit_s=120 + jobs / 30, every_s=0.3)
    judge(works, jobs, in_doubt)
    # What ended in error goes once more, and what waited behind it goes on.
    works.endpoint.healed = True
    assert works.store.retry_all() > 0
    works.wait(lambda: works.store.stats()["COMPLETED"] == jobs, "not delivered", limit_s=120 + jobs / 30)
    assert judge(works, jobs, in_doubt).delivered == jobs
    assert "standing by" in idle.text() and "leading" not in idle.text()
    assert idle.stop() == 0
    assert "0 published in 0 epochs" in idle.text()
    assert last.stop() == 0


def _kill_in_mid_delivery(works: Works, server: Process) -> set[str]:
    """Its jobs are in doubt: what was answered, if anything, it has told nobody."""
    works.wait(lambda: works.endpoint.under_way >= 8, "the endpoint has little to do", every_s=0.001)
    server.kill()
    in_doubt = works.in_progress()
    assert in_doubt
    works.start_server()
    tell(works, f"server killed with {len(in_doubt)} jobs under way")
    return in_doubt


def _kill_in_publish(works: Works, leader: Process) -> None:
    """When the queue has a random share of an epoch, between freeze and `published` as the ledger has it."""
    number, _ = works.newest_epoch().number, leader.pid  # to be looked up now, not when it must be killed
    for _ in range(50):
        works.wait(lambda number=number: works.newest_epoch().number > number, "no further epoch", every_s=0.002)  # type: ignore[misc]
        epoch, before = works.newest_epoch(), works.published.count
        number, share = epoch.number, works.dice.randrange(max(1, epoch.jobs))
        works.wait(
            lambda number=number, enough=before + share: (  # type: ignore[misc]
                works.published.count >= enough or not works.is_in_publish(number)
            ),
            "neither published nor not",
            every_s=0.001,
        )
        # Asleep it says nothing more: on a busy machine it could end the epoch while we take aim.
        os.kill(leader.pid, signal.SIGSTOP)
        if works.stays(lambda number=number: works.is_in_publish(number), for_s=0.3):  # type: ignore[misc]
            break
        os.kill(leader.pid, signal.SIGCONT)
    else:
        raise AssertionError("it was never met in publish")
    tell(works, f"killed in publish, {works.published.count - before} of {epoch.jobs} messages in")
    leader.kill()  # which waits for its Java: who stands by may have ended the epoch by then
