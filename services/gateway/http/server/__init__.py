"""The HTTP server: its socket, its connections (uvicorn's), and one request with its reply (ASGI)."""
