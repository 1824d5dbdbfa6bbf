"""Queues of the SQS door as a source, `fleet://sqs/QUEUE`: over the engine in Redis, without HTTP or a door."""
