"""Queues of our own, `fleet://NAME`, kept in the Redis that holds the fleet's other state."""
