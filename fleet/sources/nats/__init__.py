"""NATS JetStream queues, `nats://[user:password@]host[:port]/STREAM/CONSUMER[?subject=…&groupToken=N]`."""
