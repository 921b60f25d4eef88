"""Speech to text as a service of its own."""
