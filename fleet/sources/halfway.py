"""What a publisher says about each message when its queue goes away in the middle of a call."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fleet.errors import SourceError, SourceUnavailable
from fleet.sources.base import Unsent, Unsure


def told_half_way(
    refusals: Sequence[str | None], *, accepted: Collection[int], under_way: Collection[int], error: SourceError
) -> list[str | None]:
    """What is known about each place. Raises the error if nothing was accepted: it says all there is to say."""
    if not accepted:
        raise error

    def why(place: int) -> str | None:
        if place in accepted:
            return None
        if refusals[place] is not None:
            return refusals[place]
        if place not in under_way:
            return Unsent(f"not sent: {error}")
        if isinstance(error, SourceUnavailable):
            return Unsure(f"it may not have been accepted: {error}")
        # A queue that answered with a refusal (it is full, say) has not taken it.
        return Unsent(f"not sent: {error}")

    return [why(place) for place in range(len(refusals))]
