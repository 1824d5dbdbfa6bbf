"""Calls between processes and hosts: each takes a while, and may be lost, late, refused, or done without an answer.

What is on the wire belongs to nobody: a call of a process that was killed meanwhile is done all the same.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from tests.simulation.loop import Loop, Process

Fate = Literal["", "request lost", "reply lost", "request late", "reply late"]
FATES: tuple[Fate, ...] = ("request lost", "reply lost", "request late", "reply late")


class Host:
    """A server: up, away (connections are refused) or frozen (it answers once it thaws, if anybody still listens)."""

    def __init__(self, name: str, *, timeout_s: float) -> None:
        self.name = name
        self.timeout_s = timeout_s
        self.is_away = False
        self.is_frozen = False
        self.waiting: list[Callable[[], None]] = []
        self.after: Callable[[Process | None, str], None] = lambda _process, _what: None

    def refusal(self) -> Exception:
        raise NotImplementedError

    def silence(self) -> Exception:
        raise NotImplementedError

    def thaw(self) -> None:
        self.is_frozen = False
        waiting, self.waiting = self.waiting, []
        for work in waiting:
            work()


@dataclass
class Weather:
    """Bad weather between one process (or all) and one host (or all)."""

    process: str
    host: str
    share: float
    fates: tuple[Fate, ...]
    is_cut: bool = False


@dataclass(slots=True)
class _Call:
    process: Process | None
    host: Host
    what: str
    work: Callable[[], Any]
    future: asyncio.Future[Any]
    asked_s: float
    fate: Fate


class Network:
    def __init__(self, loop: Loop, chance: random.Random) -> None:
        self._loop = loop
        self._random = chance.random
        self._chance = chance
        self.weather: list[Weather] = []
        self.on_call: Callable[[Process | None, str], None] = lambda _process, _what: None

    def delay_s(self) -> float:
        """One way: 0.1 to 1 ms, and now and then much more."""
        x = self._random()
        if x < 0.01:
            return 0.002 + self._random() * 0.05
        return 0.0001 + 0.0009 * x

    def call(self, process: Process | None, host: Host, what: str, work: Callable[[], Any]) -> asyncio.Future[Any]:
        loop = self._loop
        future: asyncio.Future[Any] = loop.create_future()
        self.on_call(process, what)
        fate: Fate = ""
        if self.weather:
            for weather in self.weather:
                if weather.host in ("", host.name) and (process is None or weather.process in ("", process.name)):
                    if weather.is_cut:
                        loop.later(self.delay_s(), self._tell, process, future, host.refusal())
                        return future
                    if self._random() < weather.share:
                        fate = self._chance.choice(weather.fates)
        one = _Call(process, host, what, work, future, loop.now_s, fate)
        if fate == "request lost":
            self._give_up(one)
            return future
        delay_s = self.delay_s()
        if fate == "request late":
            delay_s += self._random() * host.timeout_s * 1.6
            self._give_up(one)
        loop.later(delay_s, self._arrive, one)
        return future

    def _give_up(self, one: _Call) -> None:
        left_s = one.asked_s + one.host.timeout_s - self._loop.now_s
        self._loop.later(max(0.0, left_s), self._tell, one.process, one.future, one.host.silence())

    def _arrive(self, one: _Call) -> None:
        if one.host.is_away:
            self._loop.later(self.delay_s(), self._tell, one.process, one.future, one.host.refusal())
        elif one.host.is_frozen:
            one.host.waiting.append(lambda: self._do(one))
            self._give_up(one)
        else:
            self._do(one)

    def _do(self, one: _Call) -> None:
        try:
            answer = one.work()
        except Exception as error:
            answer = error
        one.host.after(one.process, one.what)
        if one.fate == "reply lost":
            self._give_up(one)
            return
        delay_s = self.delay_s()
        if one.fate == "reply late":
            delay_s += self._random() * one.host.timeout_s * 1.2
            if self._loop.now_s + delay_s > one.asked_s + one.host.timeout_s:
                self._give_up(one)
                return
        self._loop.later(delay_s, self._tell, one.process, one.future, answer)

    def _tell(self, process: Process | None, future: asyncio.Future[Any], answer: Any) -> None:
        if future.done() or (process is not None and process.is_dead):
            return
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
