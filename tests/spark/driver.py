"""A driver of the feed as a process of its own, and the store and the queue that it works between."""

from __future__ import annotations

FEED = ("feed-frozen", "feed-publishing", "feed-published", "feed-marked")
