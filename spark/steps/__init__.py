"""The steps of the feed: each reads, has a transform decide, and writes."""
