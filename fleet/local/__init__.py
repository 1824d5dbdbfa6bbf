"""A fleet on one machine: its processes, its Redis, an endpoint to deliver to, the demo."""
