"""An answer on its way, of which no more is taken than the limits allow."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass

from services.llm.providers.transport.sse import EventParser, TooLarge
from services.llm.providers.transport.wire import Broken, TooLong, WireReply
from services.runtime.aside import give_way

_AT_ONCE = 16 * 1024  # bytes that are read before the event loop turns to other work: all may be line ends


@dataclass(frozen=True, slots=True)
class ReplyLimits:
    """Limits of a provider's reply."""

    event_bytes: int
    answer_bytes: int


class ProviderReply:
    """A reply whose headers have arrived. Set `complete` when all relevant parts were read: the rest is ignored."""

    def __init__(self, wired: WireReply, limits: ReplyLimits):
        self._wired, self._limits = wired, limits
        self.status: int = wired.status
        self.complete = False

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers by name in lower case."""
        return self._wired.headers

    def is_of(self, media_type: str) -> bool:
        """Whether the body is of a media type, such as `application/json`."""
        return self.headers.get("content-type", "").lower().startswith(media_type)

    async def text(self, most_bytes: int) -> str:
        """The body, or its beginning. Raises Broken."""
        return (await self._read(most_bytes))[:most_bytes].decode(errors="replace")

    async def whole(self, most_bytes: int) -> str:
        """The whole body. Raises Broken, and TooLong beyond `most_bytes` or the limit."""
        most = min(most_bytes, self._limits.answer_bytes)
        body = await self._read(most + 1)
        if len(body) > most:
            raise TooLong(most)
        return body.decode(errors="replace")

    async def _read(self, most_bytes: int) -> bytearray:
        """The body, at least until so many bytes have come."""
        body = bytearray()
        while len(body) < most_bytes and (piece := await self._wired.read()):
            body += piece
        return body

    async def events(self) -> AsyncGenerator[str, None]:
        """The data of each server-sent event. Raises Broken."""
        if not self.is_of("text/event-stream"):
            raise Broken("not an event stream")
        if self.headers.get("content-encoding", "identity").lower() != "identity":
            raise Broken("a compressed event stream, which was not requested")
        parser, left = EventParser(self._limits.event_bytes), self._limits.answer_bytes
        try:
            while piece := await self._wired.read():
                left -= len(piece)
                if left < 0:
                    raise TooLarge(f"an answer of more than {self._limits.answer_bytes} bytes")
                for start in range(0, len(piece), _AT_ONCE):
                    if start:
                        await give_way()
                    for event in parser.feed(piece[start : start + _AT_ONCE]):
                        yield event
        except TooLarge as error:
            raise Broken(str(error)) from None
