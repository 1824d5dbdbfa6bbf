"""Where messages come from: a folder for each kind of queue with one adapter, and one conformance suite for all."""
