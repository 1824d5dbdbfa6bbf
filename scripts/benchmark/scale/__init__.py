"""A hundred workers and ten thousand pools: what they ask of Redis, and what they cost."""
