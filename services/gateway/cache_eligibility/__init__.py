"""Which questions may be answered from the cache, for how long, and at which pace: pure rules."""
