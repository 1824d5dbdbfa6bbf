"""ActiveMQ queues over STOMP 1.2, `stomp://[user:password@]host[:port]/QUEUE[?prefetch=N]`."""
