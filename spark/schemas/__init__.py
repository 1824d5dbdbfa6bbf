"""What every table looks like to Spark: the columns that the pipeline reads, by name and type."""
