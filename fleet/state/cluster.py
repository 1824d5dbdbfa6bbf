"""A Redis Cluster in which a node that hangs, or is gone, does not hold up calls to the others.

After an error redis-py's own client reads the slots anew, before any other call goes on and from a node that may hang.
It repeats calls by itself, raises when a node's connections are all in use, and closes those to all nodes when one is
down. We use only its commands and its reading of the slots. Each node has connections of its own, as a single server
has.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Iterable
from typing import Any

from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.cluster import ClusterNode, ClusterPipeline, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from fleet.state.connections import TIMEOUT_S, Connections, keepalive, options
from fleet.waiting import cancel

log = logging.getLogger("fleet.redis")

_REDIRECTS = 16
_TRY_AGAIN_S = 0.05
_LOOK_EVERY_S = 0.5
"""While a node does not answer, we ask this often which node has its slots now."""
_LOST = (exceptions.ConnectionError, exceptions.TimeoutError)
_MOVED_ON = (*_LOST, exceptions.ReadOnlyError, exceptions.ClusterDownError)


class Cluster(RedisCluster):
    def __init__(self, *, wait_s: float = TIMEOUT_S, **given: Any) -> None:
        # A slot without an owner is only the trouble of calls that need it.
        super().__init__(require_full_coverage=False, **{**given, "retry": Retry(NoBackoff(), 0)})
        for kwargs in (self.connection_kwargs, *(node.connection_kwargs for node in self.startup_nodes)):
            kwargs.update(keepalive())
        self._wait_s = wait_s
        self._lines: dict[str, Redis] = {}
        self._silent: dict[str, asyncio.Task[None]] = {}
        """Nodes that did not answer, and the task that asks each if it does again. Calls fail at once meanwhile."""
        self._pings: set[asyncio.Task[None]] = set()
        """Kept here: who waits for one may be cancelled once more while it ends."""
        self._looking: asyncio.Task[None] | None = None
        self._first = asyncio.Lock()

    async def initialize(self, *_args: Any, **_options: Any) -> Cluster:
        if self._initialize:
            async with self._first:
                if self._initialize:
                    await self.nodes_manager.initialize()
                    await self._learn_commands()
                    self._initialize = False
        return self

    async def aclose(self) -> None:
        await cancel([task for task in (self._looking, *self._silent.values()) if task is not None])
        await cancel(self._pings)
        lines, self._lines = self._lines, {}
        for line in lines.values():
            await line.aclose()
        nodes = self._every_node()
        await super().aclose()
        await _disconnect(nodes)

    def node_of(self, key: str) -> str:
        """The name of the node that has a key now; '' while none does."""
        nodes = self.nodes_manager.slots_cache.get(self.keyslot(key))
        return nodes[0].name if nodes else ""

    def get_primaries(self) -> list[ClusterNode]:
        """Those that answer, as long as one does: a call that may go to any node goes to one of these."""
        primaries: list[ClusterNode] = super().get_primaries()
        return [node for node in primaries if node.name not in self._silent] or primaries

    def get_default_node(self) -> ClusterNode:
        node: ClusterNode = super().get_default_node()
        return node if node is None or node.name not in self._silent else self.get_primaries()[0]

    async def execute_command(self, *args: Any, **given: Any) -> Any:
        if args[0] == "INFO":
            return await self._ask_all(*args, **given)
        return await super().execute_command(*args, **given)

    def pipeline(self, transaction: Any = None, shard_hint: Any = None) -> _Pipeline:
        assert not transaction
        assert not shard_hint
        return _Pipeline(self)  # type: ignore[abstract]

    async def _ask_all(self, *args: Any, **given: Any) -> dict[str, Any]:
        """The answers of all nodes that give one, by the node's name."""
        nodes = [node for node in self.get_nodes() if node.name not in self._silent] or self.get_nodes()
        calls = (self._execute_command(node, *args, **given) for node in nodes)
        answers = await asyncio.gather(*calls, return_exceptions=True)
        found = {
            node.name: answer
            for node, answer in zip(nodes, answers, strict=True)
            if not isinstance(answer, BaseException)
        }
        if not found:
            error = answers[0]
            assert isinstance(error, BaseException)
            raise error
        return found

    async def _execute_command(self, target_node: ClusterNode, *args: Any, **given: Any) -> Any:
        asking = False
        for _ in range(_REDIRECTS):
            try:
                return await self._call(target_node, args, given, asking=asking)
            except exceptions.MovedError as error:
                await self.nodes_manager.move_slot(error)
                target_node = self.nodes_manager.get_node_from_slot(error.slot_id)
                asking = False
                self._look_soon(target_node.name)
            except exceptions.AskError as error:
                target_node = ClusterNode(error.host, error.port, **self.connection_kwargs)
                asking = True
            except exceptions.TryAgainError:
                await asyncio.sleep(_TRY_AGAIN_S)
        raise exceptions.ClusterError("its slot is handed from node to node")

    async def _call(self, node: ClusterNode, args: tuple[Any, ...], given: dict[str, Any], *, asking: bool) -> Any:
        self.check(node)
        line = self.line(node)
        try:
            if not asking:
                return await line.execute_command(*args, **given)  # type: ignore[no-untyped-call]
            both = line.pipeline(transaction=False)
            both.execute_command("ASKING")
            both.execute_command(*args, **given)
            return (await both.execute())[1]
        except _MOVED_ON as error:
            self.note(node, error)
            raise

    # Nodes ----------------------------------------------------------------------------------------

    def check(self, node: ClusterNode) -> None:
        if node.name in self._silent:
            raise exceptions.ConnectionError(f"node {node.name} does not answer")

    def line(self, node: ClusterNode) -> Redis:
        """Our connections to a node."""
        line = self._lines.get(node.name)
        if line is None:
            known = {name: value for name, value in self.connection_kwargs.items() if name not in _OF_THE_CLUSTER}
            known.update(options(self._wait_s), host=node.host, port=node.port)
            known |= {name: self.connection_kwargs[name] for name in _TIMES}
            line = Redis.from_pool(Connections(wait_s=self._wait_s, **known))
            self._lines[node.name] = line
        return line

    def note(self, node: ClusterNode, error: Exception) -> None:
        """A node failed a call: another may have its slots, and it may be gone."""
        if isinstance(error, _LOST) and node.name not in self._silent:
            self._silent[node.name] = asyncio.create_task(self._wait_for(node))
        self._look_soon(node.name)

    async def _wait_for(self, node: ClusterNode) -> None:
        """Wait until it answers. Calls to it fail at once meanwhile, and we keep asking where its slots are."""
        log.debug("node %s does not answer", node.name)
        line = self.line(node)
        ping = self._ping(line)
        try:
            while node.name in self.nodes_manager.nodes_cache:
                await asyncio.wait({ping}, timeout=_LOOK_EVERY_S)
                if ping.done():
                    if ping.exception() is None:
                        return
                    await asyncio.sleep(_LOOK_EVERY_S / 2)
                    ping = self._ping(line)
                self._look_soon(node.name)
        finally:
            self._silent.pop(node.name, None)
            await cancel([ping])

    def _ping(self, line: Redis) -> asyncio.Task[None]:
        ping = asyncio.create_task(_ping(line))
        self._pings.add(ping)
        ping.add_done_callback(self._pings.discard)
        return ping

    def _look_soon(self, failed: str) -> None:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(failed))

    async def _look(self, failed: str) -> None:
        """Learn which node has which slots, beside the calls. A node that failed is asked last."""
        nodes = self._every_node()
        try:
            await self.nodes_manager.initialize(last_failed_node_name=failed)
        except (exceptions.RedisError, exceptions.RedisClusterException, OSError) as error:
            log.debug("the slots are not known anew: %s", error)
        finally:
            kept = set(map(id, self._every_node()))
            await _disconnect([node for node in nodes if id(node) not in kept])
        for name in self._lines.keys() - self.nodes_manager.nodes_cache.keys():
            await self._lines.pop(name).aclose()
        await asyncio.sleep(_LOOK_EVERY_S)

    def _every_node(self) -> list[ClusterNode]:
        """Also those that redis-py asks for the slots alone, and lets go without closing their connections."""
        nodes = (*self.nodes_manager.nodes_cache.values(), *self.nodes_manager.startup_nodes.values())
        return list({id(node): node for node in nodes}.values())

    async def _learn_commands(self) -> None:
        """Learn where a command's keys stand, from any node that says so."""
        nodes = super().get_primaries()
        random.shuffle(nodes)
        for node in nodes:
            try:
                await self.commands_parser.initialize(node)
            except _LOST as error:
                log.debug("node %s does not answer: %s", node.name, error)
            else:
                self.nodes_manager.default_node = node
                return
        raise exceptions.ConnectionError("no master of the Cluster answers")


async def _ping(line: Redis) -> None:
    await line.ping()


class PerNode:
    """So many calls at once to each node: those that wait for one that hangs keep none from another."""

    def __init__(self, client: Any, most: int) -> None:
        self._client = client
        self._most = most
        self._gates: dict[str, asyncio.Semaphore] = {}

    def to(self, key: str) -> asyncio.Semaphore:
        """For the node that has the key just now: slots move."""
        node = self._client.node_of(key) if isinstance(self._client, Cluster) else ""
        gate = self._gates.get(node)
        if gate is None:
            gate = self._gates[node] = asyncio.Semaphore(self._most)
        return gate


_OF_THE_CLUSTER = {"max_connections", "response_callbacks"}
_TIMES = ("socket_timeout", "socket_connect_timeout")


class _Pipeline(ClusterPipeline):
    """A share for each node, all at once. What is redirected is sent again on its own."""

    async def execute(self, raise_on_error: bool = True, allow_redirections: bool = True) -> list[Any]:
        cluster: Any = self.cluster_client
        commands = self._execution_strategy._command_queue  # type: ignore[attr-defined]
        shares: dict[ClusterNode, list[int]] = {}
        for place, command in enumerate(commands):
            node = cluster.nodes_manager.get_node_from_slot(await cluster._determine_slot(*command.args))
            shares.setdefault(node, []).append(place)
        answers: list[Any] = [None] * len(commands)

        async def ask(node: ClusterNode, places: list[int]) -> None:
            cluster.check(node)
            share = cluster.line(node).pipeline(transaction=False)
            for place in places:
                share.execute_command(*commands[place].args, **commands[place].kwargs)
            try:
                said = await share.execute(raise_on_error=False)
            except _MOVED_ON as error:
                cluster.note(node, error)
                raise
            for place, answer in zip(places, said, strict=True):
                answers[place] = answer

        try:
            await asyncio.gather(*(ask(node, places) for node, places in shares.items()))
            for place, answer in enumerate(answers):
                redirected = isinstance(answer, exceptions.AskError | exceptions.TryAgainError)
                if redirected and allow_redirections:
                    answers[place] = await cluster.execute_command(*commands[place].args, **commands[place].kwargs)
                elif isinstance(answer, Exception) and raise_on_error:
                    raise answer
        finally:
            await self.reset()  # type: ignore[no-untyped-call]
        return answers


async def _disconnect(nodes: Iterable[ClusterNode]) -> None:
    """Waits for nothing: whoever is cancelled once more meanwhile would leave the rest open."""
    for connection in [connection for node in nodes for connection in node._connections]:
        with contextlib.suppress(exceptions.RedisError, OSError):
            await connection.disconnect(nowait=True)
