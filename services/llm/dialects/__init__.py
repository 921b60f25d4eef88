"""The words of providers' APIs, without any I/O: `*_request` writes a request, `*_answer` reads an answer.

The requests of the gateway's own callers are read in `services/gateway/http/dialects/`.
"""
