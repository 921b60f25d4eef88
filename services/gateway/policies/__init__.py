"""What policies count and decide by: hedge moments, breakers, limits, queues. They know no request and no model, and
import the runtime alone. How they are composed is in `generation/stack.py`.
"""
