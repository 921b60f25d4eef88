"""Which questions may be answered from the cache, and for how long: pure rules."""
