"""The commands of a redis-py client that the fleet's code calls, over anything that carries commands."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

Reader = Callable[[Any], Any]


def _as_it_is(answer: Any) -> Any:
    return answer


def _mapping(flat: Sequence[str]) -> dict[str, str]:
    return dict(zip(flat[0::2], flat[1::2], strict=True))


def _scored(flat: Sequence[str]) -> list[tuple[str, float]]:
    return [(member, float(score)) for member, score in zip(flat[0::2], flat[1::2], strict=True)]


def _score(answer: str | None) -> float | None:
    return None if answer is None else float(answer)


class Commands:
    """`_do` gets the command, its arguments, and how redis-py would show its answer."""

    def _do(self, reader: Reader, *command: Any) -> Any:
        raise NotImplementedError

    def evalsha(self, digest: str, count: int, *arguments: Any) -> Any:
        return self._do(_as_it_is, "EVALSHA", digest, count, *arguments)

    def eval(self, source: str, count: int, *arguments: Any) -> Any:
        return self._do(_as_it_is, "EVAL", source, count, *arguments)

    def hget(self, key: str, field: str) -> Any:
        return self._do(_as_it_is, "HGET", key, field)

    def hset(
        self, key: str, field: str | None = None, value: Any = None, mapping: Mapping[str, Any] | None = None
    ) -> Any:
        pairs = [part for pair in (mapping or {}).items() for part in pair]
        return self._do(_as_it_is, "HSET", key, *([field, value] if field is not None else []), *pairs)

    def hdel(self, key: str, *fields: str) -> Any:
        return self._do(_as_it_is, "HDEL", key, *fields)

    def hmget(self, key: str, fields: Sequence[str]) -> Any:
        return self._do(_as_it_is, "HMGET", key, *fields)

    def hgetall(self, key: str) -> Any:
        return self._do(_mapping, "HGETALL", key)

    def hkeys(self, key: str) -> Any:
        return self._do(_as_it_is, "HKEYS", key)

    def hlen(self, key: str) -> Any:
        return self._do(_as_it_is, "HLEN", key)

    def hexists(self, key: str, field: str) -> Any:
        return self._do(bool, "HEXISTS", key, field)

    def hscan(self, key: str, cursor: int = 0, count: int | None = None) -> Any:
        return self._do(lambda answer: (int(answer[0]), _mapping(answer[1])), "HSCAN", key, cursor)

    def get(self, key: str) -> Any:
        return self._do(_as_it_is, "GET", key)

    def set(self, key: str, value: Any, px: int | None = None, nx: bool = False) -> Any:
        options: list[Any] = [*(["PX", px] if px else []), *(["NX"] if nx else [])]
        return self._do(_as_it_is, "SET", key, value, *options)

    def llen(self, key: str) -> Any:
        return self._do(_as_it_is, "LLEN", key)

    def lindex(self, key: str, at: int) -> Any:
        return self._do(_as_it_is, "LINDEX", key, at)

    def lrange(self, key: str, first: int, last: int) -> Any:
        return self._do(_as_it_is, "LRANGE", key, first, last)

    def lrem(self, key: str, count: int, value: str) -> Any:
        return self._do(_as_it_is, "LREM", key, count, value)

    def sadd(self, key: str, *members: str) -> Any:
        return self._do(_as_it_is, "SADD", key, *members)

    def srem(self, key: str, *members: str) -> Any:
        return self._do(_as_it_is, "SREM", key, *members)

    def smembers(self, key: str) -> Any:
        return self._do(set, "SMEMBERS", key)

    def sscan(self, key: str, cursor: int = 0, count: int | None = None) -> Any:
        return self._do(lambda answer: (int(answer[0]), list(answer[1])), "SSCAN", key, cursor)

    def zadd(self, key: str, mapping: Mapping[str, Any], nx: bool = False, xx: bool = False) -> Any:
        pairs = [part for member, score in mapping.items() for part in (score, member)]
        return self._do(_as_it_is, "ZADD", key, *(["NX"] if nx else []), *(["XX"] if xx else []), *pairs)

    def zrem(self, key: str, *members: str) -> Any:
        return self._do(_as_it_is, "ZREM", key, *members)

    def zrangebyscore(self, key: str, least: Any, most: Any, start: int, num: int) -> Any:
        return self._do(_as_it_is, "ZRANGEBYSCORE", key, least, most, "LIMIT", start, num)

    def zremrangebyscore(self, key: str, least: Any, most: Any) -> Any:
        return self._do(_as_it_is, "ZREMRANGEBYSCORE", key, least, most)

    def zcard(self, key: str) -> Any:
        return self._do(_as_it_is, "ZCARD", key)

    def zscore(self, key: str, member: str) -> Any:
        return self._do(_score, "ZSCORE", key, member)

    def zscan(self, key: str, cursor: int = 0, count: int | None = None) -> Any:
        return self._do(lambda answer: (int(answer[0]), _scored(answer[1])), "ZSCAN", key, cursor)

    def zrange(
        self,
        key: str,
        first: Any,
        last: Any,
        desc: bool = False,
        withscores: bool = False,
        byscore: bool = False,
        offset: int | None = None,
        num: int | None = None,
    ) -> Any:
        options: list[Any] = [*(["BYSCORE"] if byscore else []), *(["REV"] if desc else [])]
        options += ["LIMIT", offset, num] if offset is not None and num is not None else []
        options += ["WITHSCORES"] if withscores else []
        return self._do(_scored if withscores else _as_it_is, "ZRANGE", key, first, last, *options)

    def publish(self, channel: str, message: str) -> Any:
        return self._do(_as_it_is, "PUBLISH", channel, message)

    def time(self) -> Any:
        return self._do(lambda answer: (int(answer[0]), int(answer[1])), "TIME")

    def info(self, section: str = "all") -> Any:
        return self._do(_as_it_is, "INFO", section)

    def exists(self, *keys: str) -> Any:
        return self._do(_as_it_is, "EXISTS", *keys)

    def delete(self, *keys: str) -> Any:
        return self._do(_as_it_is, "DEL", *keys)

    def type(self, key: str) -> Any:
        return self._do(_as_it_is, "TYPE", key)

    def dump(self, key: str) -> Any:
        return self._do(_as_it_is, "DUMP", key)

    def pttl(self, key: str) -> Any:
        return self._do(_as_it_is, "PTTL", key)

    def pexpire(self, key: str, ms: int) -> Any:
        return self._do(bool, "PEXPIRE", key, ms)

    def flushall(self) -> Any:
        return self._do(_as_it_is, "FLUSHALL")

    def script_flush(self) -> Any:
        return self._do(_as_it_is, "SCRIPT FLUSH")

    def config_set(self, name: str, value: Any) -> Any:
        return self._do(_as_it_is, "CONFIG SET", name, value)

    def ping(self) -> Any:
        return self._do(lambda answer: answer == "PONG", "PING")

    def execute_command(self, *command: Any) -> Any:
        return self._do(_as_it_is, *command)

    async def scan_iter(self) -> AsyncIterator[str]:
        _, keys = await self._do(_as_it_is, "SCAN", 0)
        for key in keys:
            yield key

    async def aclose(self) -> None:
        return


class Pipeline(Commands):
    """Commands that go in one call."""

    def __init__(self, send: Callable[[list[tuple[Any, ...]]], Awaitable[list[Any]]]) -> None:
        self._send = send
        self._queued: list[tuple[Any, ...]] = []
        self._readers: list[Reader] = []

    def _do(self, reader: Reader, *command: Any) -> Any:
        self._queued.append(command)
        self._readers.append(reader)
        return self

    async def execute(self) -> list[Any]:
        queued, self._queued = self._queued, []
        readers, self._readers = self._readers, []
        if not queued:
            return []
        answers = await self._send(queued)
        return [reader(answer) for reader, answer in zip(readers, answers, strict=True)]
