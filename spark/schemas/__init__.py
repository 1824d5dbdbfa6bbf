"""What every table looks like to Spark: the columns that the pipeline reads, by name and type."""

from spark.schemas.tables import (
    ATTEMPTS,
    CLAIMS,
    EVENTS,
    JOBS,
    JOURNAL,
    PUBLISHED,
    SUBSCRIPTIONS,
    TO_PLAN,
    TO_PUBLISH,
    TOLD_JOBS,
    UNDER_WAY,
)

__all__ = [
    "ATTEMPTS",
    "CLAIMS",
    "EVENTS",
    "JOBS",
    "JOURNAL",
    "PUBLISHED",
    "SUBSCRIPTIONS",
    "TOLD_JOBS",
    "TO_PLAN",
    "TO_PUBLISH",
    "UNDER_WAY",
]
