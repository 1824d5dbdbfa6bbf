"""POST by workers: the message of a dispatch job. Its token is for that job alone, so no role of the server is
needed."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from fleet.server import context
from fleet.server.answers import Json, error, read_json, whole_number

PATH = "/api/dispatch/process"
_MOST_ATTEMPTS = 2_000_000_000


async def process(request: Request) -> Response:
    """`?attempt=n`, `{"messageId": job id}`, `Authorization: Bearer` and the token that the pipeline made from the
    id."""
    body = await read_json(request)
    job_id = body.get("messageId") if isinstance(body, dict) else None
    if not isinstance(job_id, str) or not job_id:
        raise HTTPException(400, "messageId: must be the id of a job")
    attempt = whole_number("attempt", request.query_params.get("attempt"), least=1, most=_MOST_ATTEMPTS, in_query=True)
    processor = context.of(request).processor
    if not await processor.is_token(job_id, _bearer(request)):
        return error(401, "the token is not of this job", headers={"WWW-Authenticate": "Bearer"})
    answer = await processor.process(job_id, attempt)
    told = {"ack": answer.ack, "message": answer.message}
    return Json(told if answer.ack else {**told, "delaySeconds": answer.delay_s})


def _bearer(request: Request) -> str:
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    return value.strip() if scheme.lower() == "bearer" else ""
