"""Simulated callers by gRPC whose messages are one byte short, and then late. Raw HTTP/2, because no gRPC library sends
a part of a message."""

from __future__ import annotations

import asyncio
import base64

from google.rpc import error_details_pb2, status_pb2
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, DataReceived, ResponseReceived, StreamEnded, StreamReset, TrailersReceived

GENERATE, HEALTH = "/hedgerow.gateway.v1.GatewayService/Generate", "/grpc.health.v1.Health/Check"
_GONE = 14  # UNAVAILABLE
_PIECE = 65_536


class _Caller(asyncio.Protocol):
    """One connection with calls that each send as much of a message as they may. `ended`: google.rpc.Code of the calls
    that are over, and whether the status says when to retry."""

    def __init__(self, path: str, key: str, calls: int, size: int):
        self._h2 = H2Connection(H2Configuration(header_encoding="utf-8"))
        self._calls, self._prefix = calls, b"\0" + size.to_bytes(4)
        own = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "mesh")]
        usual = [("content-type", "application/grpc"), ("te", "trailers")]
        self._headers = [*own, *usual, *([("authorization", f"Bearer {key}")] if key else [])]
        self._left: dict[int, int] = {}
        self._size = len(self._prefix) + size - 1
        self.ended: list[tuple[int, bool]] = []
        self.over = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._h2.initiate_connection()
        for _ in range(self._calls):
            stream = self._h2.get_next_available_stream_id()
            self._left[stream] = self._size
            self._h2.send_headers(stream, self._headers)
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended += [(_GONE, False)] * len(self._left)
        self.over.set()

    def data_received(self, data: bytes) -> None:
        for event in self._h2.receive_data(data):
            match event:
                case ResponseReceived(headers=headers) | TrailersReceived(headers=headers):
                    self._note(event.stream_id, {str(name): str(value) for name, value in headers})
                case StreamEnded() | StreamReset():
                    self._left.pop(event.stream_id, None)
                case DataReceived(flow_controlled_length=length):
                    self._h2.acknowledge_received_data(length, event.stream_id)
                case ConnectionTerminated():
                    self._transport.close()
        self._send()
        if len(self.ended) == self._calls:
            self.over.set()

    def _note(self, stream: int, trailers: dict[str, str]) -> None:
        if "grpc-status" not in trailers:
            return
        packed = trailers.get("grpc-status-details-bin", "")
        status = status_pb2.Status.FromString(base64.b64decode(packed + "=" * (-len(packed) % 4)))
        again = any(detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for detail in status.details)
        self.ended.append((int(trailers["grpc-status"]), again))
        self._left.pop(stream, None)

    def _send(self) -> None:
        for stream, left in self._left.items():
            while left and (room := min(self._h2.local_flow_control_window(stream), left, _PIECE)) > 0:
                room = min(room, self._h2.max_outbound_frame_size)
                sent = self._size - left  # the window may end within the prefix
                self._h2.send_data(stream, self._prefix[sent : sent + room].ljust(room))
                left -= room
            self._left[stream] = left
        self._transport.write(self._h2.data_to_send())

    def close(self) -> None:
        self._transport.close()


async def short_messages(
    address: str, key: str, calls: int, size: int, path: str = GENERATE, within_s: float = 60
) -> list[tuple[int, bool]]:
    """How so many calls at once ended whose messages of `size` bytes miss the last one: google.rpc.Code, and whether it
    says when to come back. Without a `key` they have no credential."""
    host, _, port = address.rpartition(":")
    connect = asyncio.get_running_loop().create_connection
    _, caller = await connect(lambda: _Caller(path, key, calls, size), host, int(port))
    try:
        await asyncio.wait_for(caller.over.wait(), within_s)
        return caller.ended
    finally:
        caller.close()
