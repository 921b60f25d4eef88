"""A connection of aiohttp's that keeps answers apart, and says at once when one of them is broken."""

from __future__ import annotations

from typing import Any

from aiohttp import ClientPayloadError
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage
from aiohttp.streams import StreamReader

_SWITCHED, _FINAL = 101, 200  # statuses below it, but for this one, come before the answer


class Http1Connection(ResponseHandler):
    """Bytes behind an answer that has ended were not asked for. aiohttp would keep them for the next request, which may
    be another tenant's. Here the connection is closed.

    aiohttp raises a broken chunk where a head is awaited, not where a body is read. Here the body ends with the error
    in its `exception()`.
    """

    _answered = False  # the final head has come, and nothing was asked since

    def set_response_params(self, **params: Any) -> None:
        """The next request is about to be sent."""
        super().set_response_params(**params)
        self._answered = False

    def data_received(self, data: bytes) -> None:
        if data and self._answered and (self._payload is None or self._payload.is_eof()):
            self._close()
        else:
            super().data_received(data)

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        """The head of an answer."""
        if self._answered:
            self._close()
            return
        self._answered = data[0].code >= _FINAL or data[0].code == _SWITCHED
        super().feed_data(data, size)

    def set_exception(self, exc: BaseException, *cause: Any) -> None:
        super().set_exception(exc, *cause)
        if self._payload is not None and not self._payload.is_eof():
            self._payload.set_exception(ClientPayloadError(type(exc).__name__))
            self._payload.feed_eof()  # a reader that was just woken, by the end of a chunk, looks at nothing else

    def _close(self) -> None:
        self.force_close()
        if self.transport is not None:
            self.transport.close()
