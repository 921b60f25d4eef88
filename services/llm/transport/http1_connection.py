"""A connection of aiohttp's that says at once when an answer is broken."""

from __future__ import annotations

from typing import Any

from aiohttp import ClientPayloadError
from aiohttp.client_proto import ResponseHandler


class Connection(ResponseHandler):
    """aiohttp tells a broken chunk to who waits for a head, not to who reads a body. Here the body ends with the error in
    its `exception()`.
    """

    def set_exception(self, exc: BaseException, *cause: Any) -> None:
        super().set_exception(exc, *cause)
        if self._payload is not None and not self._payload.is_eof():
            self._payload.set_exception(ClientPayloadError(type(exc).__name__))
            self._payload.feed_eof()  # a reader that was just woken, by the end of a chunk, looks at nothing else
