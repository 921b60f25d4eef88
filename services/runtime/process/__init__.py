"""The process of a service: settings, start and stop, workers, health, logs."""
