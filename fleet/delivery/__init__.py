"""The HTTP edge: the libcurl client and the reading of its answers."""
