"""The peers, each as its own users run it, and what they are run with."""
