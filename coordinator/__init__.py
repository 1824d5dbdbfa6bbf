"""Queue → Redis, and Redis → queue: polls the sources it owns and acknowledges what was settled."""
