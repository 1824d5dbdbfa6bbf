"""The address of a subscription, `fleet://subscription/NAME`, or of a topic, `fleet://topic/NAME`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote

from fleet.broker.errors import InvalidArgument
from fleet.broker.names import check_subscription_name, check_topic_name
from fleet.errors import InvalidConfig

Kind = Literal["subscription", "topic"]


@dataclass(frozen=True, slots=True)
class Address:
    kind: Kind
    name: str

    @property
    def uri(self) -> str:
        return f"fleet://{self.kind}/{self.name}"


def parse(uri: str) -> Address:
    scheme, _, rest = uri.partition("://")
    kind, _, quoted = rest.partition("/")
    try:
        if scheme.lower() == "fleet" and kind.lower() == "subscription":
            return Address("subscription", check_subscription_name(unquote(quoted)))
        if scheme.lower() == "fleet" and kind.lower() == "topic":
            return Address("topic", check_topic_name(unquote(quoted)))
    except InvalidArgument as error:
        raise InvalidConfig(f"fleet://{kind.lower()}/NAME: {error}") from error
    raise InvalidConfig("neither fleet://subscription/NAME nor fleet://topic/NAME")
