"""The dispatch job store: events, jobs and their attempts, in PostgreSQL or SQLite."""
