"""The table of models, with their live latency. The rules of the choice: `services/runtime/routing.py`."""
