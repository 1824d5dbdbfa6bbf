"""SQS queues, FIFO and standard: `sqs://REGION/[ACCOUNT/]NAME`, or the queue's own `https://` or `http://` URL."""
