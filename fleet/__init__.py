"""Fleet: messages delivered by HTTP, in order within a group, concurrently across groups."""

__version__ = "0.1.0"
