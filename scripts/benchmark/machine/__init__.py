"""What a measurement stands on: child processes, servers, the sink, CPU time, the profiler."""
