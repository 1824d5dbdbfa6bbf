"""Where messages come from: one file per kind of queue, one conformance suite for all."""
