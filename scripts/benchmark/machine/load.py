"""How busy the machine was with other things while we measured: a slow figure on a busy machine is no news."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_CORES = os.cpu_count() or 1


class Elsewhere:
    """Started before an attempt, asked after it, when its processes have ended (their time counts from then)."""

    def __init__(self, server_pid: int) -> None:
        self._server_pid = server_pid
        self._began_s = time.monotonic()
        self._others_s = self._others_so_far_s()

    def share(self) -> float:
        """The part of all cores that neither we, our children nor the sink used, 0 to 1."""
        elapsed_s = max(time.monotonic() - self._began_s, 1e-6)
        share = (self._others_so_far_s() - self._others_s) / (elapsed_s * _CORES)
        return min(1.0, max(0.0, share))

    def _others_so_far_s(self) -> float:
        # Interrupts stay out: on loopback they are mostly our own packets, and are not booked to a process.
        user, nice, system, _idle, _iowait, _irq, _softirq, steal = (
            int(word) for word in Path("/proc/stat").read_text().split(None, 9)[1:9]
        )
        own_s = 0.0
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
            usage = resource.getrusage(who)
            own_s += usage.ru_utime + usage.ru_stime
        # After the name, which may hold spaces: utime and stime are the 12th and 13th field.
        fields = Path(f"/proc/{self._server_pid}/stat").read_text().rpartition(")")[2].split()
        server_ticks = int(fields[11]) + int(fields[12])
        return (user + nice + system + steal - server_ticks) / _TICKS_PER_S - own_s
