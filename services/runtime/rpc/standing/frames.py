"""Frames of calls on one standing stream: their bytes, and the order in which a side sends them. No I/O.

A frame is a header (kind, call, size of the payload; 9 bytes, big-endian) and its payload. A message of the stream is
one frame or more, and no frame is in two messages. The caller numbers its calls. A head is a list in JSON, whose first
item is metadata.

| kind | from | payload |
|---|---|---|
| HELLO | server | head: how many calls may be open at once; the first frame |
| OPEN | caller | head: metadata, the method's path, milliseconds to the deadline or null; body: the request |
| PART | server | a piece of a reply, of which more follows |
| DATA | server | a reply, or its last piece |
| END | server | nothing where the status is OK and has no trailing metadata; else head: trailing metadata, the code; \
body: the details. Exactly one for each OPEN |
| CANCEL | caller | nothing. The call keeps its place until its END |
| CREDIT | caller | how many bytes of replies have been read, as 4 bytes |
| LEAVE | both | nothing. The server: it is about to stop. The caller: no OPEN follows, in answer or because its \
connection takes no more calls |

**Later releases.** Two releases run side by side during an upgrade, so a receiver ignores frames of kinds that it does
not know, and items at the end of a head. A server says in HELLO what else it understands; a caller says it in the
metadata of the stream. Everything else here, the sizes below included, stays as it is, or gets another `METHOD`.

**Flow control.** A reply may begin while the server has credit left: `WINDOW_BYTES` at first, less the bytes it has
sent, and more by each CREDIT. So a reader that is slow holds up its own call, and of each call at most the window and
one reply are held. Requests need no credit: larger ones than `LARGEST_OPEN` are calls of their own, and the number of
open calls is bounded.

**Turns.** A reply is cut into pieces of `PIECE_BYTES`. Each message takes a piece's worth from one call after the
other, so that a large reply does not hold up small ones.
"""

from __future__ import annotations

import base64
import json
import struct
from collections import deque
from collections.abc import Iterator, KeysView, Sequence

from services.runtime.rpc.local_call import Metadata

SERVICE, METHOD = "hedgerow.internal.StandingStream", "Calls"  # a stream of bytes each way
HELLO, OPEN, PART, DATA, END, CANCEL, CREDIT, LEAVE = range(8)
WINDOW_BYTES = 262_144  # as gRPC's, see `arrival.py`
PIECE_BYTES = 65_536
LARGEST_OPEN = 65_536  # bytes of a request
_MESSAGE_BYTES = 262_144  # reached by no more than a piece's worth: far below the largest message of a channel
_HEADER, _SIZE = struct.Struct("!BII"), struct.Struct("!I")


class BadFrame(ValueError):
    """The other side sent bytes that are no frames."""


def read_frames(message: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The kind, call and payload of each frame of a message. Raises `BadFrame`."""
    at, end = 0, len(message)
    while at < end:
        if at + _HEADER.size > end:
            raise BadFrame(f"a frame's header has {_HEADER.size} bytes, got {end - at}")
        kind, call, size = _HEADER.unpack_from(message, at)
        at += _HEADER.size
        if at + size > end:
            raise BadFrame(f"a frame of kind {kind} and {size} bytes, of which {end - at} came")
        yield kind, call, message[at : at + size]
        at += size


def credit(size: int) -> bytes:
    return _SIZE.pack(size)


def read_credit(payload: bytes) -> int:
    """Raises `BadFrame`."""
    if len(payload) != _SIZE.size:
        raise BadFrame("a credit without its size")
    return int(_SIZE.unpack(payload)[0])


def with_head(head: Sequence[object], metadata: Metadata, body: bytes) -> bytes:
    """A payload that has a head. As in HTTP/2, only metadata whose keys end with `-bin` have bytes."""
    pairs = [(key, value if isinstance(value, str) else base64.b64encode(value).decode()) for key, value in metadata]
    raw = json.dumps([pairs, *head]).encode()
    return _SIZE.pack(len(raw)) + raw + body


def read_head(payload: bytes) -> tuple[Sequence[object], tuple[tuple[str, str | bytes], ...], bytes]:
    """The arguments of `with_head`. Raises `BadFrame`."""
    try:
        start = _SIZE.size + _SIZE.unpack_from(payload)[0]
        pairs, *head = json.loads(payload[_SIZE.size : start])
        metadata = tuple((key, _value(key, text)) for key, text in pairs)
    except (struct.error, ValueError, TypeError, AttributeError, RecursionError):
        raise BadFrame("a payload without its head") from None
    return head, metadata, payload[start:]


def _value(key: str, text: str) -> str | bytes:
    if not isinstance(text, str):
        raise TypeError(key)
    return base64.b64decode(text, validate=True) if key.endswith("-bin") else text


class Outgoing:
    """Frames that wait to be sent, `size` bytes: those of a call in order, and calls in turns."""

    def __init__(self) -> None:
        self._queues: dict[int, deque[bytes]] = {}
        self.size = 0

    @property
    def calls(self) -> KeysView[int]:
        """The calls of these frames; 0: frames of the stream."""
        return self._queues.keys()

    def put(self, kind: int, call: int = 0, payload: bytes = b"") -> None:
        frame = _HEADER.pack(kind, call, len(payload)) + payload
        self.size += len(frame)
        if (queue := self._queues.get(call)) is None:
            self._queues[call] = deque((frame,))
        else:
            queue.append(frame)

    def put_reply(self, call: int, reply: bytes) -> None:
        """Queue a reply, in pieces if it is large."""
        last = max(len(reply) - 1, 0) // PIECE_BYTES * PIECE_BYTES
        for at in range(0, last, PIECE_BYTES):
            self.put(PART, call, reply[at : at + PIECE_BYTES])
        self.put(DATA, call, reply[last:] if last else reply)

    def drop(self, call: int) -> None:
        """Forget what waits of a call."""
        self.size -= sum(map(len, self._queues.pop(call, ())))

    def message(self) -> bytes:
        """The next message; empty if no frame waits."""
        frames, size = list[bytes](), 0
        while self._queues and size < _MESSAGE_BYTES:
            call, queue = next(iter(self._queues.items()))
            most = size + PIECE_BYTES
            while queue and size < most:
                frames.append(queue.popleft())
                size += len(frames[-1])
            del self._queues[call]
            if queue:
                self._queues[call] = queue  # behind the others
        self.size -= size
        return b"".join(frames)
