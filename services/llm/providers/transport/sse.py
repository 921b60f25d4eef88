"""Server-sent events, of which a provider may send no more than it should.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
"""

from __future__ import annotations

_PREFIX = b"data:"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class TooLarge(Exception):
    """The text names the limit."""


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
        """The events that are whole now. Raises TooLarge."""
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
            raise TooLarge(f"an event of more than {self._limit} bytes")
