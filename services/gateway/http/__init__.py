"""The gateway's other door: HTTP, in the words of OpenAI's and Anthropic's APIs, to the same servicer as gRPC.

What reads bodies and writes answers is pure (`fields`, `chat_request`, `openai_chat`, …); `exchange` knows ASGI,
`connection` and `server` know uvicorn, and `app` says which route is served by what.
"""
