"""Queue → Redis, and Redis → queue: polls the queues that it owns, and acknowledges there what was settled."""
