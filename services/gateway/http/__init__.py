"""The gateway's HTTP API: the APIs of OpenAI and Anthropic, served by the same servicer as gRPC.

`app` maps paths to routes, `server` receives requests, `dialects` reads them and writes answers, `endpoints` serves the
routes: `generating` those that ask for an answer.
"""
