"""Fleet set up to be measured: its processes, its queues, what fills them, an endpoint that takes notes."""
