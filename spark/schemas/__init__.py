"""What every table looks like to Spark: the columns that the pipeline reads, by name and type."""

from spark.schemas.tables import CLAIMS, EVENTS, JOBS, PUBLISHED, SUBSCRIPTIONS, TO_PLAN, TO_PUBLISH, UNDER_WAY

__all__ = ["CLAIMS", "EVENTS", "JOBS", "PUBLISHED", "SUBSCRIPTIONS", "TO_PLAN", "TO_PUBLISH", "UNDER_WAY"]
