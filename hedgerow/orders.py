"""Orders to a process of services (`services/runtime/process/together.py`), from `hedgerow up` and from the parent of
workers.

Its standard input is a socket, on which it gets each order and answers once it serves it
(`services/runtime/process/orders.py`). A change of the mesh file changes the running process, service by service.
"""

from __future__ import annotations

import asyncio
import json
import socket
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

_CHUNK_BYTES = 4096


class Orders:
    """The end of the socket that gives orders."""

    def __init__(self) -> None:
        self._socket, self._far_end = socket.socketpair()
        weakref.finalize(self, self._socket.close)
        self._socket.setblocking(False)
        self._number, self._unread, self._one = 0, b"", asyncio.Lock()

    @contextmanager
    def far_end(self) -> Iterator[int]:
        """The descriptor to start the process with. It is closed here once the process has it."""
        with self._far_end:
            yield self._far_end.fileno()

    async def give(self, members: Sequence[Mapping[str, object]], **more: object) -> str:
        """The error with which the process answers an order for `members`, and what it says `more`; empty once it
        serves them. Raises OSError where the process has closed its end."""
        async with self._one:
            self._number += 1
            order = json.dumps({"number": self._number, "members": members, **more}).encode() + b"\n"
            await asyncio.get_running_loop().sock_sendall(self._socket, order)
            while True:
                answer = json.loads(await self._line())
                if answer["number"] == self._number:  # an earlier order was given up: nothing waits for its answer
                    return str(answer["error"])

    async def _line(self) -> bytes:
        while b"\n" not in self._unread:
            more = await asyncio.get_running_loop().sock_recv(self._socket, _CHUNK_BYTES)
            if not more:
                raise ConnectionResetError
            self._unread += more
        line, _, self._unread = self._unread.partition(b"\n")
        return line
