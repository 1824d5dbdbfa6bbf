"""Embedded queues, `sqlite:///PATH?queue=NAME`, kept in a SQLite file of this machine."""
