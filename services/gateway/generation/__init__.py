"""The text of an answer: a stack of policies between whoever reads it and a model. `stack.py` has their order.

A policy is one file here, in the shape of `stream.Generate`, and one line there. What a policy counts and decides by,
without knowing of models or requests, is in `policies`.
"""
