"""Everything Fleet keeps in Redis: its keys, its scripts, and one typed wrapper per script."""
