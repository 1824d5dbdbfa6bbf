"""Counting, and what is counted as Prometheus reads it."""
