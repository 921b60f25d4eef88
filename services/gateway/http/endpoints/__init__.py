"""Routes that give no answer of a model. Each call is a request of its tenant's quota."""
