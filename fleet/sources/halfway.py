"""What a publisher says of each message when its queue goes away in the middle of a call."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fleet.errors import SourceError, SourceUnavailable
from fleet.sources.base import Unsent, Unsure


def told_half_way(
    refusals: Sequence[str | None], *, accepted: Collection[int], under_way: Collection[int], error: SourceError
) -> list[str | None]:
    """What is known of each place. Raises the error where nothing was accepted: then it is all there is to say."""
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
        # A queue that answered with a no, as it is full, has not taken it.
        return Unsent(f"not sent: {error}")

    return [why(place) for place in range(len(refusals))]
