"""Publishing from a file or a request: messages as JSON has them, in batches, each refusal with its line."""

from __future__ import annotations

import binascii
import itertools
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from fleet.broker.core import Broker
from fleet.broker.errors import BrokerError, InvalidArgument, Unsure
from fleet.broker.message import Message, checked_message

FIELDS = ("data", "dataBase64", "attributes", "orderingKey")
_BATCH = 500
_REFUSALS_NAMED = 10


@dataclass(frozen=True, slots=True)
class Line:
    number: int
    message: Message | None
    refusal: str = ""


@dataclass(slots=True)
class Published:
    ids: list[str] = field(default_factory=list)
    refused: int = 0
    refusals: list[str] = field(default_factory=list)
    """The first of them, with their line."""
    unknown: int = 0
    """Messages whose answer got lost: they may have been published."""
    stopped: str = ""

    @property
    def is_whole(self) -> bool:
        return not (self.refused or self.unknown or self.stopped)


def message_of(given: Any) -> dict[str, Any]:
    """As `Broker.publish` takes it, of what JSON has. Data that is not text is sent as the JSON that it is."""
    if not isinstance(given, dict):
        raise InvalidArgument("must be an object")
    if strangers := sorted(set(given) - set(FIELDS)):
        raise InvalidArgument(f"{strangers[0][:60]}: unknown field; there are: {', '.join(FIELDS)}")
    if "data" in given and "dataBase64" in given:
        raise InvalidArgument("data and dataBase64 exclude each other")
    return {
        "data": _data(given),
        "attributes": given.get("attributes"),
        "ordering_key": given.get("orderingKey"),
    }


def _data(given: dict[str, Any]) -> bytes:
    if "dataBase64" not in given:
        data = given.get("data", "")
        return data.encode() if isinstance(data, str) else msgspec.json.encode(data)
    try:
        return b64decode(given["dataBase64"], validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise InvalidArgument(f"dataBase64: {error}") from None


def from_lines(lines: Iterable[bytes], *, attributes: Mapping[str, str], ordering_key: str | None) -> Iterator[Line]:
    """Empty lines are skipped. `attributes` are added to those of a line, `ordering_key` replaces its own."""
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            found = message_of(msgspec.json.decode(text))
            found["attributes"] = {**(found["attributes"] or {}), **attributes}
            found["ordering_key"] = ordering_key or found["ordering_key"]
            yield Line(number, checked_message(found))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            yield Line(number, None, f"not JSON: {error}")
        except InvalidArgument as error:
            yield Line(number, None, error.message)
        except TypeError:
            yield Line(number, None, "attributes: must be an object")


async def publish_all(broker: Broker, topic: str, lines: Iterable[Line]) -> Published:
    """In order. If the broker goes away it ends: what came later would overtake what was not taken."""
    done, rest = Published(), iter(lines)
    while batch := list(itertools.islice(rest, _BATCH)):
        for line in batch:
            if line.message is None:
                done.refused += 1
                if len(done.refusals) < _REFUSALS_NAMED:
                    done.refusals.append(f"line {line.number}: {line.refusal}")
        good = [line for line in batch if line.message is not None]
        try:
            done.ids += await broker.publish(topic, [line.message for line in good if line.message is not None])
        except BrokerError as error:
            if isinstance(error, Unsure):
                done.unknown = len(good)
            elif not done.ids:
                raise
            done.stopped = f"line {good[0].number} and what is behind it: {error}"
            break
    return done
