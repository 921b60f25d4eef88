"""What makes a module a process: settings, start and stop, workers, health, logs."""
