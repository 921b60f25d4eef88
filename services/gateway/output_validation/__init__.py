"""Output validation: whether an answer matches its response format. Pure rules, and a thread for them."""
