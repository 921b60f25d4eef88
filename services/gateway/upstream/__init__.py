"""The backends: stubs and the errors of calls, replicas, how they are found and chosen, drills, the router's table."""
