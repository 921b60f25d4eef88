"""The caller's side of a standing stream: its open calls. No I/O: messages of the server in, frames out.

A caller that cancels, or whose task is cancelled, or whose deadline is over, sends CANCEL. The call keeps its place
among the open ones until its END, so that both sides count alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc

from hedgerow.channel import MAX_MESSAGE_BYTES
from services.runtime.rpc.local_call import CallersSide, Metadata, failed
from services.runtime.rpc.standing import frames
from services.runtime.rpc.standing.frames import BadFrame, Outgoing

_STATUS: dict[object, grpc.StatusCode] = {status.value[0]: status for status in grpc.StatusCode}
_UNREPORTED = frames.WINDOW_BYTES // 2  # bytes that the reader has taken, before the server gets them as credit
_MOST_NUMBERS = 2**32 - 1


class OpenCalls:
    """The calls of one stream: frames in by `receive`, frames out by `outgoing`, for which `filled` is set. `closed`
    is set once it takes no more calls. `greeted`: the server offers it. `refused`: a side has ended the stream, and
    would end the next one."""

    def __init__(self) -> None:
        self.outgoing, self.filled, self.closed = Outgoing(), asyncio.Event(), asyncio.Event()
        self.greeted = self.refused = False
        self._open: dict[int, StandingCall] = {}
        self._number = self._most = 0

    @property
    def is_empty(self) -> bool:
        """Whether no call is open."""
        return not self._open

    @property
    def takes_calls(self) -> bool:
        """Whether the server has greeted, and fewer calls than it allows are open."""
        return len(self._open) < self._most

    def open(
        self, path: str, request: bytes, timeout_s: float | None, metadata: Metadata, parse: Callable[[bytes], Any]
    ) -> StandingCall | None:
        """A call, unless the stream cannot take it now."""
        if not self.takes_calls or len(request) > frames.LARGEST_OPEN:
            return None
        left_ms = None if timeout_s is None else round(timeout_s * 1000)
        payload = frames.with_head([path, left_ms], metadata, request)
        while True:  # a stream of weeks may begin again, beside calls that have no end
            self._number = self._number % _MOST_NUMBERS + 1
            if self._number not in self._open:
                break
        call = self._open[self._number] = StandingCall(self, self._number, timeout_s, parse)
        self.put(frames.OPEN, self._number, payload)
        return call

    def put(self, kind: int, number: int = 0, payload: bytes = b"") -> None:
        """Send a frame, unless its call is over."""
        if number in self._open or not number:
            self.outgoing.put(kind, number, payload)
            self.filled.set()

    def leave(self) -> None:
        """Take no more calls."""
        if not self.closed.is_set():
            self._most = 0
            self.closed.set()
            self.put(frames.LEAVE)

    def fail(self, details: str, *, refused: bool = False) -> None:
        """The stream is over, and so are its calls."""
        self._most, self.refused = 0, refused
        self.closed.set()
        for call in self._open.values():
            call.finish(grpc.StatusCode.UNAVAILABLE, details, ())
        self._open.clear()

    def receive(self, message: bytes) -> None:
        """Take a message of the server. Raises `BadFrame`."""
        for kind, number, payload in frames.read_frames(message):
            match kind:
                case frames.DATA | frames.PART:
                    self._call(number).add(payload, is_last=kind == frames.DATA)
                case frames.END:
                    self._call(number).finish(*_status(payload))
                    del self._open[number]
                case frames.HELLO:
                    self._hello(payload)
                case frames.LEAVE:
                    self.leave()

    def _hello(self, payload: bytes) -> None:
        match frames.read_head(payload)[0]:
            case [int(most), *_]:
                self.greeted = True
                self._most = 0 if self.closed.is_set() else most
            case _:
                raise BadFrame("a HELLO without the number of calls")

    def _call(self, number: int) -> StandingCall:
        try:
            return self._open[number]
        except KeyError:
            raise BadFrame(f"a frame for call {number}, which is not open") from None


def _status(payload: bytes) -> tuple[grpc.StatusCode, str, Metadata]:
    if not payload:
        return grpc.StatusCode.OK, "", ()
    head, trailing, details = frames.read_head(payload)
    match head:
        case [int(code), *_] if code in _STATUS:
            return _STATUS[code], details.decode(errors="replace"), trailing
    raise BadFrame("an END without a status code")


class StandingCall(CallersSide):
    """A call on a stream, from its caller's side. It keeps its place among the open calls until its END."""

    def __init__(self, calls: OpenCalls, number: int, timeout_s: float | None, parse: Callable[[bytes], Any]):
        super().__init__(timeout_s)
        self._calls, self._number, self._parse = calls, number, parse
        self._pieces, self._unreported = list[bytes](), 0

    def add(self, piece: bytes, *, is_last: bool) -> None:
        """Take a reply or a piece of one. A call that is over drops it."""
        if self.done():
            return
        if self._pieces or not is_last:
            self._pieces.append(piece)
            if sum(map(len, self._pieces)) > MAX_MESSAGE_BYTES:
                self._pieces.clear()
                self.end(grpc.StatusCode.RESOURCE_EXHAUSTED, f"a reply of at most {MAX_MESSAGE_BYTES} bytes, got more")
                return
            if not is_last:
                return
            piece = b"".join(self._pieces)
            self._pieces.clear()
        self.receive(piece)

    def _stop(self) -> None:
        self._calls.put(frames.CANCEL, self._number)

    def _read(self, reply: bytes) -> Any:
        self._unreported += len(reply)
        if self._unreported >= _UNREPORTED and not self.done():
            self._calls.put(frames.CREDIT, self._number, frames.credit(self._unreported))
            self._unreported = 0
        try:
            return self._parse(reply)
        except Exception:  # of any parser
            self.end(grpc.StatusCode.INTERNAL, "")
            raise failed(grpc.StatusCode.INTERNAL, f"a malformed reply of {len(reply)} bytes") from None
