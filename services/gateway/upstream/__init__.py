"""The backends: the calls to each service and their errors, replicas, how these are found and chosen, and drills."""
