"""Algorithms of policies: hedge moments, breakers, limits, queues. They know no request and no model, and import only
the runtime. `generation/stack.py` composes the policies that use them."""
