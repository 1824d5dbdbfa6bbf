"""What a stream does with what it pulled, when it ends half-way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from fleet.broker.core import Broker
from fleet.broker.message import PulledMessage
from fleet.broker.pubsub.messages import ANSWER_BYTES
from fleet.broker.pubsub.outstanding import Outstanding
from fleet.broker.pubsub.settle import Settler
from fleet.broker.pubsub.streaming import Stream
from tests.unit.broker.pubsub.test_messages import pulled


class OnePull:
    """A broker with three messages, of which each fills an answer."""

    def __init__(self) -> None:
        self.given_back: list[str] = []

    async def pull(self, *_: Any, **__: Any) -> list[PulledMessage]:
        return [pulled(name, ANSWER_BYTES) for name in ("one", "two", "three")]

    def give_back(self, _subscription: str, messages: Sequence[PulledMessage]) -> None:
        self.given_back += [one.id for one in messages]


async def test_what_was_not_written_goes_back_and_what_may_have_arrived_does_not() -> None:
    broker, outstanding = OnePull(), Outstanding()
    written: list[str] = []
    is_stuck = asyncio.Event()

    async def write(answer: Any) -> None:
        written.extend(one.message.message_id for one in answer.received_messages)
        if written[-1] == "two":
            is_stuck.set()
            await asyncio.Event().wait()

    with outstanding.budget(messages=0, size=0, time_s=asyncio.get_running_loop().time) as budget:
        stream = Stream(
            "sub",
            broker=cast(Broker, broker),
            settler=Settler(cast(Broker, broker), outstanding),
            budget=budget,
            write=write,
            deadline_s=10,
            is_ordered=False,
        )
        giving = asyncio.create_task(stream.give())
        await is_stuck.wait()
        giving.cancel()
        await asyncio.wait([giving])
    assert (written, broker.given_back) == (["one", "two"], ["three"])
