"""The fleet over HTTP: what monitors read, what operators do, what producers send."""
