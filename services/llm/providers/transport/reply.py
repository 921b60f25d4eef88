"""An answer on its way, of which no more is taken than the limits allow; and server-sent events.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass

from services.llm.providers.transport.wire import Broken, TooLong, WireReply
from services.runtime.aside import give_way

_AT_ONCE = 16 * 1024  # bytes that are read before the event loop turns to other work: all may be line ends
_PREFIX = b"data:"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


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
        """The data of each server-sent event. Raises Broken, and TooLong for an event beyond the limit."""
        if not self.is_of("text/event-stream"):
            raise Broken("not an event stream")
        if self.headers.get("content-encoding", "identity").lower() != "identity":
            raise Broken("a compressed event stream, which was not requested")
        parser, left = EventParser(self._limits.event_bytes), self._limits.answer_bytes
        while piece := await self._wired.read():
            left -= len(piece)
            if left < 0:
                raise Broken(f"an answer of more than {self._limits.answer_bytes} bytes")
            for start in range(0, len(piece), _AT_ONCE):
                if start:
                    await give_way()
                for event in parser.feed(piece[start : start + _AT_ONCE]):
                    yield event


class EventParser:
    """Finds the data of events in the pieces of a body, each as one line: JSON that is relayed must have no line end
    where its provider put one between two values. Names and ids of events are not looked at."""

    def __init__(self, max_event_bytes: int):
        self._limit = max_event_bytes
        self._rest = bytearray()  # of a line
        self._data: list[bytes] = []  # lines of an event
        self._size = 0  # of those
        self._mark = _BYTE_ORDER_MARK  # that may stand before the first line
        self._half = False  # the last piece ended by \r: a \n that begins the next one belongs to it

    def feed(self, piece: bytes) -> list[str]:
        """The events that are whole now. Raises TooLong."""
        if not piece:
            return []
        if self._half:
            piece = piece.removeprefix(b"\n")
        self._half = piece.endswith(b"\r")
        end = max(piece.rfind(b"\n"), piece.rfind(b"\r"))
        if end < 0:
            self._rest += piece
            self._check(len(self._rest))
            return []
        lines = bytes(self._rest + piece[: end + 1]).removeprefix(self._mark).splitlines()
        self._rest[:], self._mark = piece[end + 1 :], b""
        said = (line for line in lines if line.startswith(_PREFIX) or (self._data and not line))
        return [event for line in said if (event := self._line(line)) is not None]

    def _line(self, line: bytes) -> str | None:
        """Take a line of data. A blank one ends the event."""
        if line.startswith(_PREFIX):
            self._check(len(line))
            self._data.append(line[len(_PREFIX) :].removeprefix(b" "))
            self._size += len(line)
            return None
        event = b" ".join(self._data).decode(errors="replace")
        self._data.clear()
        self._size = 0
        return event

    def _check(self, more: int) -> None:
        if self._size + more > self._limit:
            raise TooLong(self._limit, "an event")
