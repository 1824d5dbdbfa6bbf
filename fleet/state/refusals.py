"""Types for what Redis answers when it does not do what it was asked: redis-py has them for some codes only.

It takes the codes that it knows out of the text. The others are in the text alone, where a pipeline puts its own words
before them. So the code is read once, where the answer is parsed.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from redis import exceptions
from redis._parsers.hiredis import _AsyncHiredisParser


class NotNow(exceptions.ResponseError):
    """The server answers, but will not do it now: its disk is full, a script holds it up, its master is away."""


class NotHere(NotNow):
    """It may not be the server to write to any more. Another may be, at the same address."""


_CODES: dict[str, type[NotNow]] = {
    "MISCONF": NotNow,
    "BUSY": NotNow,
    "UNKILLABLE": NotNow,
    "KILLED": NotNow,
    "NOREPLICAS": NotHere,
    "NOMASTERLINK": NotHere,
    "UNBLOCKED": NotHere,
}
KILLED = "Script killed by user"
"""By an operator with SCRIPT KILL, which does not work on a script that has written."""

PASSING = (
    NotNow,
    exceptions.ReadOnlyError,
    exceptions.TryAgainError,
    exceptions.AskError,  # and MOVED
    exceptions.ExecAbortError,
)
"""What was refused is done when it is asked for again, perhaps by another server."""
DEMOTED = (NotHere, exceptions.ReadOnlyError, exceptions.MasterDownError, exceptions.BusyLoadingError)

# Before Redis 7 the answer to a command in a script stands within the answer to the script.
_WITHIN = re.compile(r"^ERR Error running script .*?: -(?=[A-Z]+ )", re.DOTALL)


def refusal_of(error: exceptions.RedisError) -> str:
    """Words for a server that does not let us in, or does not let us do what we asked."""
    text = str(error)
    # It answers a greeting without a password with a paragraph about HELLO.
    wants_password = "HELLO must be called" in text or "NOAUTH" in text
    return f"refuses us: {'a password is wanted' if wants_password else text}"


class Parser(_AsyncHiredisParser):
    EXCEPTION_CLASSES: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        **_AsyncHiredisParser.EXCEPTION_CLASSES,
        **_CODES,
    }

    @classmethod
    def parse_error(cls, response: str) -> Exception:
        response = _WITHIN.sub("", response, count=1)
        error: Exception = super().parse_error(response)  # type: ignore[no-untyped-call]
        if isinstance(error, NotNow):
            # Without its code the text says too little.
            error.args = (response,)
        elif KILLED in response:
            error = NotNow(response)
        return error
