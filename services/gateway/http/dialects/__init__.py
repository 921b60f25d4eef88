"""Requests and answers in the words of four APIs: chat completions, completions, responses and messages.

`*_request` reads a body, `*_answer` writes an answer, and `*_relay` passes a provider's own events on to a client of
the same API. All are pure; `endpoints/generating.py` serves the routes. Requests to the providers of models, and their
answers, are in `services/llm/dialects/`.
"""
