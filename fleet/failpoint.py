"""Named places where a test may kill, stop or disturb a process, to prove what a crash there does.

`FLEET_FAILPOINT=name:action[:nth]` arms one of them for this process; `action` is `kill` (SIGKILL),
`stop` (SIGSTOP), `block` (the event loop hangs until SIGCONT) or a word that only the place itself knows.
Unarmed, `hit` costs one comparison.
"""

from __future__ import annotations

import logging
import os
import signal

log = logging.getLogger("fleet")

NAMES = frozenset(
    {
        # coordinator
        "polled",  # taken from the source, not tracked
        "tracked",  # tracked, not submitted
        "submitted",  # submitted, the consumer does not know yet
        "settled-read",  # settled outcomes read, nothing done with them
        "acked-at-source",  # deleted at the source, still tracked
        "untracked",  # nacks untracked, not yet nacked at the source
        "nacked-at-source",  # nacked at the source, still on the settled list
        "owned",  # queue lease won, older epochs not yet fenced in the pools
        "fenced-pools",  # older epochs fenced, not yet reconciled
        # worker
        "claimed",  # claim answered, nothing sent
        "claim-lost",  # claim sent, its answer thrown away
        "posted",  # request made, not yet written
        "requested",  # request on the wire, no answer yet
        "answered",  # answer read, not settled
        "settle-repeated",  # the same settle is sent twice
        "settled",  # in the outbox, not copied
        "copied",  # copied to the settled list, not trimmed
        # feed
        "feed-frozen",  # claims written, nothing published
        "feed-publishing",  # after a batch, in an executor
        "feed-published",  # all in the queue, not marked
        "feed-marked",  # marked, nothing done after that
    }
)

_name, _action, _nth = "", "", 1


def arm(spec: str) -> None:
    """Arm one place. An unknown name is an error: a failpoint that never fires proves nothing."""
    global _name, _action, _nth
    name, _, rest = spec.partition(":")
    action, _, nth = rest.partition(":")
    if name not in NAMES or not action:
        raise ValueError(f"no such failpoint: {spec}")
    _name, _action, _nth = name, action, int(nth or 1)


def is_armed(name: str) -> bool:
    return name == _name


def hit(name: str) -> str:
    """Pass a place. Returns the armed action when it is this place's turn and not a signal, else ''."""
    global _nth, _name
    if name != _name:
        return ""
    _nth -= 1
    if _nth > 0:
        return ""
    _name = ""  # fires once: a process that was stopped and goes on must not stop again
    if _action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if _action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
        return ""
    if _action == "block":
        _block(name)
        return ""
    return _action


def _block(name: str) -> None:
    """Wedge the event loop, as a call that never returns would: unlike after SIGSTOP, other threads go on."""
    # Block the signal first: one that comes while we log is not lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT})
    log.warning("blocked at failpoint %s until SIGCONT", name)
    signal.sigwait({signal.SIGCONT})
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCONT})


def arm_if(spec: str) -> None:
    """Arm what the settings name, if they name anything."""
    if spec:
        arm(spec)
