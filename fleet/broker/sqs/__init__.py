"""An SQS-compatible door: AWS JSON 1.0 and the Query protocol in front of the queues in Redis."""
