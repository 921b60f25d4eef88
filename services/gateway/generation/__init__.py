"""The generation of an answer's text: a stack of policies between the readers of an answer and a model. `stack.py` has
their order.

A policy is a class here, in the shape of `job.Generate`, and a line in `stack.py`. Algorithms that know no requests and
no models are in `policies`. Requests are refused earlier, in `admission`.
"""
