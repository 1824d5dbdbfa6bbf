"""The pipeline's rows, beside DuckDB and a poller."""
