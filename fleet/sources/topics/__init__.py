"""Topics and subscriptions as queues: the router reads `fleet://subscription/NAME`, senders send to `fleet://topic/NAME`."""
