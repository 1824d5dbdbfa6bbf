"""The syncer: fetch the router configuration, validate it, publish a revision."""
