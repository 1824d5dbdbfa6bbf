"""The benchmark: Fleet, its peers and the limits of this machine, in one run against one sink."""
