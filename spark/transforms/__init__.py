"""What is decided, as functions from tables to tables: no input, no output, no clock."""
