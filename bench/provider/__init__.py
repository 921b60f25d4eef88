"""A simulated provider: a real server that speaks OpenAI's chat completions, over HTTP/1.1 or HTTP/2 and over TLS. It
counts the connections it takes, and misbehaves as configured. There is no model.
"""
