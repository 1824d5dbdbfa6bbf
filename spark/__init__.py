"""The pipeline: events become jobs, jobs become messages, attempts become reports."""
