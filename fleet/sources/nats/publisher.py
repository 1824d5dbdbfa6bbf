"""Putting messages into a JetStream stream: pipelined, each confirmed by the server."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from nats.aio.msg import Msg

from fleet.errors import InvalidConfig, SourceUnavailable
from fleet.sources.base import Outgoing, never
from fleet.sources.halfway import told_half_way
from fleet.sources.nats.address import NatsAddress, is_token
from fleet.sources.nats.consumer import stream_of
from fleet.sources.nats.line import NatsLine, Sent, is_no_responders

_HEADER_VALUE = re.compile(r"[^\x00-\x1f\x7f]*")
_HEADERS_BYTES = 512
"""More than the names and the framing of our headers take."""


class NatsPublisher:
    """Publishes to one subject of one stream. Any number of publishers may share it."""

    def __init__(self, *, address: NatsAddress) -> None:
        self._address = address
        self._line = NatsLine(address)
        self._parts: list[str] = []

    async def open(self) -> None:
        try:
            self._parts = self._subject(await stream_of(self._line)).split(".")
        except BaseException:
            await self._line.close()
            raise

    async def publish(self, messages: Sequence[Outgoing]) -> list[str | None]:
        results: list[str | None] = [None] * len(messages)
        sent: list[tuple[int, Sent]] = []
        for place, message in enumerate(messages):
            refusal = never(self._refusal(message))
            if refusal is None:
                sent.append((place, (self._subject_of(message), message.body, self._headers(message))))
            else:
                results[place] = refusal
        answers: list[Msg | None] = []
        trouble: SourceUnavailable | None = None
        try:
            await self._line.exchange([one for _, one in sent], into=answers)
        except SourceUnavailable as error:
            trouble = error
        accepted: set[int] = set()
        for (place, _), answer in zip(sent, answers, strict=False):  # as many as were begun
            if answer is not None:
                results[place] = _why_not(answer)
                if results[place] is None:
                    accepted.add(place)
        if trouble is None:
            return results
        under_way = {place for place, _ in sent[: len(answers)]}
        return told_half_way(results, accepted=accepted, under_way=under_way, error=trouble)

    async def close(self) -> None:
        await self._line.close()

    def _subject(self, stream: dict[str, Any]) -> str:
        """The one subject to publish to; a `*` at the place of the group token is left for the group."""
        subject = self._address.subject
        if not subject:
            subjects = stream["config"].get("subjects") or []
            if len(subjects) != 1:
                raise InvalidConfig(
                    f"stream {self._address.stream} has {len(subjects)} subjects: add ?subject= to its URI"
                )
            subject = subjects[0]
        for number, part in enumerate(subject.split("."), 1):
            if part == ">" or (part == "*" and number != self._address.group_token):
                raise InvalidConfig(
                    f"stream {self._address.stream}: cannot publish to subject '{subject}': add ?subject= to its URI"
                )
        return str(subject)

    def _subject_of(self, message: Outgoing) -> str:
        return ".".join(message.group or "" if part == "*" else part for part in self._parts)

    def _headers(self, message: Outgoing) -> dict[str, str]:
        headers = {"Nats-Msg-Id": message.dedup_id or message.id, "Nats-Expected-Stream": self._address.stream}
        if message.group:
            headers["Fleet-Group"] = message.group
        return headers

    def _refusal(self, message: Outgoing) -> str | None:
        if message.delay_ms:
            return "JetStream cannot delay a message" if message.delay_ms > 0 else "delay is negative"
        header_bytes = _HEADERS_BYTES
        for field, value in (("group", message.group or ""), ("dedup id", message.dedup_id or message.id)):
            if not _HEADER_VALUE.fullmatch(value) or value != value.strip():
                return f"{field} cannot stand in a header of NATS"
            try:
                header_bytes += len(value.encode())
            except UnicodeEncodeError:
                return f"{field} is not valid text"
        if "*" in self._parts and not is_token(message.group or ""):
            return "group cannot stand in a subject of NATS"
        if len(message.body) + header_bytes > self._line.max_payload_bytes:
            return f"message is larger than the server takes ({self._line.max_payload_bytes} bytes with its headers)"
        return None


def _why_not(answer: Msg) -> str | None:
    if is_no_responders(answer):
        return "no stream takes this subject"
    told = json.loads(answer.data)
    if error := told.get("error"):
        return str(error.get("description", "refused"))
    return None
