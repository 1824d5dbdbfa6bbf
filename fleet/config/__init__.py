"""Configuration: the settings of this process, the router configuration, and where both come from."""
