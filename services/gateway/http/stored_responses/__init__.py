"""Responses that the gateway stores, so that a request goes on with one by its id: in memory, or on Redis."""
