"""Why a message or a group is not moving: where it is, what it waits for, and until when."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from fleet.config.router import QueueConfig, RouterConfig, shown_uri
from fleet.message import DEFAULT_GROUP
from fleet.operate import dead_letters, explain_delivery, explain_source, explain_unseen, views
from fleet.operate.explanation import Explanation
from fleet.state import groups, present
from fleet.state.connect import Client
from fleet.state.groups import GroupView, PoolNow
from fleet.state.pool import Pool
from fleet.state.queue import Tracked
from fleet.state.registry import Registry
from fleet.state.scripts import SEP
from fleet.state.tracked import FoundMessage, by_id, settled_of
from fleet.words import at, number

_LETTERS_NAMED = 3


@dataclass(slots=True)
class Explainer:
    """`now_ms` is for tests; empty means Redis TIME."""

    client: Client
    config: RouterConfig
    now_ms: str = ""
    source_now_ms: int | None = None
    """The time by which an embedded queue judges: the clock of this machine."""
    pool: str | None = None
    """Look only in this one."""
    depths: views.AskDepths = views.queue_depths
    _queues: list[str] = field(default_factory=list)

    async def explain(self, subject: str) -> Explanation:
        """A message by its id or its queue's id for it, else a group."""
        registry = Registry(self.client, now_ms=self.now_ms)
        self._queues = sorted({queue.name for queue in self.config.queues} | set(await registry.queues()))
        found = await by_id(self.client, self._queues, subject)
        if found is not None and self.pool in (None, found.message.pool):
            return await self._tracked(subject, found)
        codes = [self.pool] if self.pool else sorted(await registry.pools())
        pools = await groups.pools_with(self.client, codes, subject)
        if pools:
            return await self._group(subject, pools)
        # An acked message has given up its id: another may use it. So everything that is tracked is searched for it.
        found = await settled_of(self.client, self._queues, subject)
        if found is not None and self.pool in (None, found.message.pool):
            return await self._tracked(subject, found)
        at_source = await explain_source.look(self.client, self.config, subject, pool=self.pool, now_ms=self._wall())
        letters = await self._letters(subject)
        if at_source is None:
            unseen = self._unseen()
            at_source = await explain_unseen.given_back(
                self.client, unseen, subject, pool=self.pool, now_ms=self.now_ms
            )
        if at_source is not None:
            at_source = await self._with_what_it_is_behind(at_source)
            at_source.details.extend(letters)
            return at_source
        if letters:
            return Explanation(subject, "DEAD", "an operator: `fleet dead replay` or `fleet dead purge`", None, letters)
        return await self._unknown(subject)

    def _unseen(self) -> list[QueueConfig]:
        queues = (queue for queue in self.config.queues if not explain_source.can_be_looked_into(queue))
        return sorted(queues, key=lambda queue: queue.name)

    async def _with_what_it_is_behind(self, explained: Explanation) -> Explanation:
        """Its queue shows it when the other one is done. Only the pool of that one can tell what it waits for."""
        found = await by_id(self.client, self._queues, explained.behind) if explained.behind else None
        if found is None:
            return explained
        other = await self._tracked(explained.behind, found)
        explained.details.append(f"Message {explained.behind} is {other.state} and waits for {other.waits_for}.")
        return replace(explained, until_ms=other.until_ms, details=explained.details + other.details)

    def _wall(self) -> int:
        return time.time_ns() // 1_000_000 if self.source_now_ms is None else self.source_now_ms

    # Messages -------------------------------------------------------------------------------------

    async def _tracked(self, subject: str, found: FoundMessage) -> Explanation:
        queue, message = found.queue, found.message
        taken = f"It was taken from queue {queue} for pool {message.pool} {at(message.tracked_ms)}."
        if message.state != "t":
            return await self._settled(subject, queue, message, taken)
        key = f"{queue}{SEP}{message.broker_id}"
        order = await groups.lined_up(self.client, message.pool, message.lane)
        if key in order:
            return await self._queued(subject, message, order.index(key), taken)
        _, outboxed = await Pool(self.client, message.pool).queued([key])
        if any(item.startswith(f"{key}{SEP}{message.token}{SEP}") for item in outboxed):
            details = [taken, f"Its outcome is settled in pool {message.pool} and on its way to its queue."]
            return Explanation(subject, "SETTLED", "its worker, or the leader, to copy the outcome", None, details)
        return await self._in_no_pool(subject, queue, taken)

    async def _settled(self, subject: str, queue: str, message: Tracked, taken: str) -> Explanation:
        acked = message.state == "a"
        what = "delivered, refused for good or put aside" if acked else "to be shown again by its queue"
        waits_for = f"the owner of queue {queue} to {'ack' if acked else 'nack'} it there"
        details = [taken, f"It is settled: {what}.", await self._owner(queue)]
        return Explanation(subject, "ACKING" if acked else "NACKING", waits_for, None, details)

    async def _in_no_pool(self, subject: str, queue: str, taken: str) -> Explanation:
        details = [
            taken,
            "No pool holds it: its coordinator is just about to submit it, or died before it did.",
            await self._owner(queue),
            "The queue's next owner gives it back to its queue when it takes over.",
        ]
        return Explanation(
            subject, "TRACKED", f"the owner of queue {queue} to submit it, or the next to take over", None, details
        )

    async def _queued(self, subject: str, message: Tracked, place: int, taken: str) -> Explanation:
        view = await groups.group(self.client, message.pool, message.lane, now_ms=self.now_ms)
        if view is None:  # all of it was settled between two looks
            return await self.explain(subject)
        its_group = await self._group_in(subject, view, message.pool)
        its_group.details.insert(0, taken)
        if view.head.broker_id == message.broker_id:
            return its_group
        head = view.head.message_id
        # A message of high priority that came later stands first, and still waits for what is under way.
        others = number(max(place, 1), "message")
        its_group.details.insert(1, f"It is behind {others} of group {_named(view)}; the first of them is {head}.")
        its_group.details.insert(2, f"Message {head} is {its_group.state} and waits for {its_group.waits_for}.")
        return replace(its_group, state="QUEUED", waits_for=f"message {head}, which is before it in its group")

    # Groups ---------------------------------------------------------------------------------------

    async def _group(self, subject: str, pools: Sequence[str]) -> Explanation:
        view = await groups.group(self.client, pools[0], subject, now_ms=self.now_ms)
        if view is None:
            return await self._unknown(subject)
        explained = await self._group_in(subject, view, pools[0])
        messages = number(view.queued, "message")
        explained.details.insert(0, f"Pool {pools[0]} holds {messages} of it; the first is {view.head.message_id}.")
        if len(pools) > 1:
            explained.details.append(f"It has messages in other pools too (--pool): {', '.join(pools[1:])}.")
        explained.details.extend(await self._letters(subject))
        return explained

    async def _group_in(self, subject: str, view: GroupView, code: str) -> Explanation:
        pool = await groups.pool_now(self.client, code, now_ms=self.now_ms)
        details = [f"Its endpoint: {shown_uri(view.head.target)}"]
        details += await explain_source.breaker_of(self.client, view.head.target, now_ms=self.now_ms)
        if pool is not None and pool.settings.draining:
            details.append(f"Pool {code} drains: it delivers what it holds, and takes nothing new.")
        if view.head.tries:
            details.append(f"Message {view.head.message_id} failed {_times(view.head.tries)} in place.")
        match view.state:
            case "leased":
                registry = Registry(self.client, now_ms=self.now_ms)
                now_ms = int(self.now_ms or await registry.clock_ms())
                processes = await present.processes(self.client, now_ms=self.now_ms)
                return explain_delivery.processing(subject, code, view, details, processes=processes, now_ms=now_ms)
            case "lapsed":
                details.append(f"Worker {view.worker} (epoch {view.epoch}) has not renewed its lease.")
                explained = await self._claimable(subject, code, pool, details)
                return replace(explained, state="LAPSED") if explained.state == "READY" else explained
            case "waiting":
                return self._waiting(subject, view, details)
            case _:
                return await self._claimable(subject, code, pool, details)

    def _waiting(self, subject: str, view: GroupView, details: list[str]) -> Explanation:
        if view.head.tries:
            waits_for = "its next try in place, after a failure"
        else:
            waits_for = "its next try: its endpoint was busy, away, or refused an epoch"
        details.append("`fleet group release` tries it at once, `fleet group skip` puts its first message aside.")
        return Explanation(subject, "WAITING", waits_for, view.until_ms, details)

    async def _claimable(self, subject: str, code: str, pool: PoolNow | None, details: list[str]) -> Explanation:
        """It could be claimed now, if its pool and a worker let it."""
        if pool is None:
            details.append(f"Pool {code} has no settings in Redis.")
            return Explanation(subject, "UNKNOWN_POOL", "the syncer to publish the configuration", None, details)
        limit, rate = pool.settings.concurrency, pool.settings.rate_limit_per_minute
        if pool.paused:
            details.append(f"Pool {code} is paused by an operator.")
            return Explanation(subject, "PAUSED", f"`fleet pool resume {code}`", None, details)
        workers = await self._workers_of(code)
        if not workers:
            details.append(f"No live worker serves pool {code}.")
            return Explanation(subject, "NO_WORKER", f"a worker that serves pool {code}", None, details)
        if pool.leases >= limit:
            details.append(
                f"Pool {code} delivers {number(pool.leases, 'group')} at a time, and its concurrency is {limit}."
            )
            details.append(f"{number(pool.ready, 'group waits', 'groups wait')} for a slot.")
            return Explanation(subject, "CONCURRENCY", f"a free slot of pool {code}", None, details)
        if pool.permit_ms is not None:
            used, wait = number(rate or 0, "delivery", "deliveries"), number(pool.ready, "group waits", "groups wait")
            details.append(f"Pool {code} has used up its {used} a minute; {wait}.")
            return Explanation(subject, "RATE_LIMITED", f"the next permit of pool {code}", pool.permit_ms, details)
        serve, ready = number(workers, "worker serves", "workers serve"), number(pool.ready, "group is", "groups are")
        details.append(f"{serve} pool {code}; {ready} ready in it.")
        return Explanation(subject, "READY", "a worker to claim it, which should be at once", None, details)

    # What both need -------------------------------------------------------------------------------

    async def _workers_of(self, code: str) -> int:
        records = await present.processes(self.client, now_ms=self.now_ms)
        return sum(
            record.get("role") == "worker" and any(fnmatchcase(code, glob) for glob in record.get("pools", ()))
            for record in records
        )

    async def _owner(self, queue: str) -> str:
        owner = await explain_source.owner_of(self.client, queue)
        return f"Queue {queue} is owned by {owner}." if owner else f"Nobody owns queue {queue} at the moment."

    async def _letters(self, subject: str) -> list[str]:
        """Sentences about the dead letters of that message or group."""
        sentences: list[str] = []
        count = 0
        wanted = dead_letters.LettersWanted(pool=self.pool)
        async for letter in dead_letters.letters(self.client, self._queues, wanted):
            content = letter.content
            if subject in (content.get("messageId"), content.get("brokerMessageId"), content.get("messageGroupId")):
                count += 1
                if count <= _LETTERS_NAMED:
                    which = content.get("messageId") or content.get("brokerMessageId")
                    since = at(int(content.get("t", 0)))
                    sentences.append(
                        f"Dead letter of {which} in queue {letter.queue}: {letter.kind} {since}, {content['reason']}."
                    )
        if count > _LETTERS_NAMED:
            sentences.append(f"… and {number(count - _LETTERS_NAMED, 'more dead letter')} of it.")
        return sentences

    async def _unknown(self, subject: str) -> Explanation:
        where = f"pool {self.pool}" if self.pool else "any pool"
        details = [
            f"Neither a message nor a group of that name is in {where}, in the queues that can be looked into,"
            " or among the dead letters.",
            "It was delivered and acked, or never sent, or to a queue that is not configured.",
        ]
        possible, sentences = await explain_unseen.where_it_may_be(self._unseen(), self.depths)
        waits_for = "nothing"
        if possible:
            waits_for = "nothing that is known; it may stand in a queue that cannot be looked into"
            details[-1] = details[-1][:-1] + "; or it still stands in a queue that cannot be looked into."
        return Explanation(subject, "UNKNOWN", waits_for, None, [*details, *sentences])


def _named(view: GroupView) -> str:
    return view.name or DEFAULT_GROUP


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
