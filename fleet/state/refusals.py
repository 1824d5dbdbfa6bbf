"""What Redis answers with when it does not do what it was asked, as types: redis-py has one for some of the codes only.

Of those it knows it takes the code out of the text; of the others the code is in the text alone, where a pipeline
puts its own words before it. So the code is read once, where the answer is parsed.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from redis import exceptions
from redis._parsers.hiredis import _AsyncHiredisParser


class NotNow(exceptions.ResponseError):
    """The server answers, and will do it another time: its disk is full, a script holds it up, its master is away."""


class NotHere(NotNow):
    """It may not be the server to write to any more. Somebody else may be, at the same address."""


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
"""By an operator with SCRIPT KILL, which is done to none that has written."""

PASSING = (
    NotNow,
    exceptions.ReadOnlyError,
    exceptions.TryAgainError,
    exceptions.AskError,  # and MOVED
    exceptions.ExecAbortError,
)
"""What was refused is done when it is asked for again, perhaps of another server."""
DEMOTED = (NotHere, exceptions.ReadOnlyError, exceptions.MasterDownError, exceptions.BusyLoadingError)

# Before Redis 7 what a command within a script was answered stands within the answer to the script.
_WITHIN = re.compile(r"^ERR Error running script .*?: -(?=[A-Z]+ )", re.DOTALL)


def refusal_of(error: exceptions.RedisError) -> str:
    """What a server does that does not let us in, or do what we asked."""
    text = str(error)
    # To a greeting without a password it explains HELLO, for a paragraph.
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
            # It says no more without its code than somebody's opinion.
            error.args = (response,)
        elif KILLED in response:
            error = NotNow(response)
        return error
