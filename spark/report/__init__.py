"""What a report looks like: its findings, its words, its plots, its page. Nothing here needs Spark."""
