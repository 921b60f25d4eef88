"""How an answer dies."""

from __future__ import annotations

import socket
import struct
from asyncio import StreamWriter

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER on, for no time: close sends RST in place of FIN


class Died(Exception):
    """The connection is to be reset now."""


def reset(writer: StreamWriter) -> None:
    """End the connection with RST."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()
