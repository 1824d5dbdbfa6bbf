"""Topics and subscriptions. What needs no Redis is decided here, a file a thing; the engine is in `fleet/state/`."""
