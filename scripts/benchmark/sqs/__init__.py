"""The SQS door, and the servers that people use in its place, under the same clients."""
