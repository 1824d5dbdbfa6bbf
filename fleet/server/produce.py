"""POST by producers: messages into a queue. Each is accepted or refused by itself, or nobody knows which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from fleet.errors import FleetError, InvalidConfig
from fleet.operate import views
from fleet.operate.send import (
    ONE_OF_EIGHT,
    Draft,
    GroupMode,
    Overrides,
    drafts_from_lines,
    sample_target,
    seed_drafts,
    uri_of_queue,
)
from fleet.server import context
from fleet.server.answers import Json, only_fields, read_json, whole_number
from fleet.sources.base import Outgoing, Unsure

MOST_SEEDED = 100_000
_SEED_FIELDS = ("count", "queue", "endpoint", "messageGroupMode")
_AT_ONCE = 5000


async def post_messages(request: Request) -> Response:
    """One message, a list of them, or {"queue", "messages"}. The answer says for each what came of it.

    200 if the queue took all, 207 if some, 400 if none, 503 if none is known to be in and some may be: a producer that
    reads only the status loses nothing.
    """
    documents, queue = _messages_of(await read_json(request))
    name, uri = await _queue(request, request.query_params.get("queue", queue))
    # One line each: the checks are those for a file of messages.
    drafts = list(drafts_from_lines(map(msgspec.json.encode, documents), Overrides()))
    results = await _send(request, uri, drafts)
    tally = _Tally()
    tally.add(results)
    body = {"queue": name, **tally.shown(), "results": results}
    if not tally.accepted:
        known = "is known to be" if tally.unknown else "was"
        body["error"] = f"no message {known} accepted: {results[0]['error']}"
    return Json(body, tally.status())


@dataclass(slots=True)
class _Tally:
    accepted: int = 0
    refused: int = 0
    unknown: int = 0

    def add(self, results: Sequence[Mapping[str, Any]]) -> None:
        accepted = sum(result["accepted"] for result in results)
        unknown = sum("unknown" in result for result in results)
        self.accepted += accepted
        self.unknown += unknown
        self.refused += len(results) - accepted - unknown

    def shown(self) -> dict[str, Any]:
        counts = {"accepted": self.accepted, "refused": self.refused}
        return counts | {"unknown": self.unknown} if self.unknown else counts

    def status(self) -> int:
        if not (self.refused or self.unknown):
            return 200
        # Not 400 if any is unknown: a producer that is told its request was wrong does not send it again.
        return 207 if self.accepted else 503 if self.unknown else 400


def _messages_of(body: Any) -> tuple[list[Any], str | None]:
    queue = None
    if isinstance(body, dict) and "messages" in body:
        only_fields(body, ("queue", "messages"))
        queue, body = body.get("queue"), body["messages"]
        if queue is not None and not isinstance(queue, str):
            raise HTTPException(400, "queue: must be a name")
    documents = body if isinstance(body, list) else [body]
    if not documents:
        raise HTTPException(400, "there is no message in the body")
    return documents, queue


async def _queue(request: Request, name: str | None) -> tuple[str, str]:
    config = (await views.configuration(context.of(request).client))[1]
    try:
        return uri_of_queue(config, name)
    except InvalidConfig as error:
        raise HTTPException(404, str(error)) from None
    except FleetError as error:
        # There are queues, but the request does not say which: the request is wrong.
        raise HTTPException(400, f"queue: {error}") from None


async def _send(request: Request, uri: str, drafts: list[Draft]) -> list[dict[str, Any]]:
    good = [draft for draft in drafts if not draft.refusal]
    outgoing = [Outgoing(draft.id, draft.body, draft.group, draft.dedup_id) for draft in good]
    answers = await context.of(request).publishers.publish(uri, outgoing) if good else []
    refusals = iter(answers)
    results: list[dict[str, Any]] = []
    for draft in drafts:
        refusal = draft.refusal or next(refusals)
        result: dict[str, Any] = {"id": draft.id or None, "accepted": not refusal}
        if isinstance(refusal, Unsure):
            result["unknown"] = True
        # Only a plain `str` can be encoded, and a queue's answer may be a subclass of it.
        results.append({**result, "error": str(refusal)} if refusal else result)
    return results


async def post_seed(request: Request) -> Response:
    """Made-up messages, asked for by a JSON body or by the query."""
    body = await read_json(request, optional=True)
    if body is not None and not isinstance(body, dict):
        raise HTTPException(400, "the body must be an object")
    asked = {**request.query_params, **(body or {})}
    only_fields(asked, _SEED_FIELDS)
    in_query = "count" not in (body or {})
    count = whole_number("count", asked.get("count", 10), least=1, most=MOST_SEEDED, in_query=in_query)
    mode = asked.get("messageGroupMode", "unique")
    if mode not in get_args(GroupMode):
        raise HTTPException(400, f"messageGroupMode: must be one of {', '.join(get_args(GroupMode))}")
    for field in ("queue", "endpoint"):
        if not isinstance(asked.get(field, ""), str):
            raise HTTPException(400, f"{field}: must be text")
    try:
        target = sample_target(asked.get("endpoint", "fast"))
    except FleetError as error:
        raise HTTPException(400, f"endpoint: {error}") from None
    name, uri = await _queue(request, asked.get("queue"))
    tally, troubles = _Tally(), []
    for drafts in _batches(seed_drafts(count=count, mode=mode, groups=ONE_OF_EIGHT, target=target)):
        results = await _send(request, uri, drafts)
        tally.add(results)
        troubles += [result["error"] for result in results if not result["accepted"]][:1]
    answer = {"queue": name, **tally.shown()}
    if troubles:
        answer["error"] = troubles[0]
    return Json(answer, tally.status())


def _batches(drafts: Iterator[Draft]) -> Iterator[list[Draft]]:
    batch: list[Draft] = []
    for draft in drafts:
        batch.append(draft)
        if len(batch) == _AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch
