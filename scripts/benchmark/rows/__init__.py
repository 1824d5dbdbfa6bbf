"""Rows of the table that measure Fleet: rates, latency, cost, limits."""
