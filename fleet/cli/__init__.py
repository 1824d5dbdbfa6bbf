"""The `fleet` command. It parses and prints; the logic lives elsewhere."""
