"""Where the server listens, and which tokens open it. Needs no web framework: every command imports it."""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from typing import Literal

from fleet.config.settings import ServerSettings
from fleet.errors import InvalidConfig
from fleet.listening import is_loopback

Role = Literal["viewer", "operator"]


@dataclass(frozen=True, slots=True)
class Tokens:
    operator: str = field(default="", repr=False)
    viewer: str = field(default="", repr=False)

    @staticmethod
    def of(settings: ServerSettings, host: str) -> Tokens:
        """InvalidConfig if everybody on the network could do everything."""
        if not is_loopback(host) and not settings.token:
            raise InvalidConfig(f"listening on {host} needs a token: set FLEET_SERVER_TOKEN (or listen on 127.0.0.1)")
        return Tokens(settings.token, settings.viewer_token)

    @property
    def any(self) -> bool:
        return bool(self.operator or self.viewer)

    def role_of(self, token: str) -> Role | None:
        given = token.encode()
        # Always compare both: how long it takes must say nothing about either.
        is_operator = hmac.compare_digest(given, self.operator.encode()) and bool(self.operator)
        is_viewer = hmac.compare_digest(given, self.viewer.encode()) and bool(self.viewer)
        return "operator" if is_operator else "viewer" if is_viewer else None
