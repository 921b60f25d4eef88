"""Calls of the clients without an event loop that send while they receive."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Self, TypeVar

from hedgerow._errors import Cancelled
from hedgerow._incoming import Incoming
from hedgerow._peer import Metadata
from hedgerow._streams import EventStream

E = TypeVar("E")
_ROOM = 4  # requests that may wait: live audio that waits is late


class Outbox:
    """Requests on their way: the caller's threads put them in, gRPC's takes them out."""

    def __init__(self) -> None:
        self._waiting: deque[Any] = deque()
        self._changed = threading.Condition()
        self._complete = self._over = False
        self.problem: Exception | None = None  # what the caller's iterator raised

    def fill(self, requests: Iterable[Any], give_up: Callable[[], object]) -> None:
        """Put all of them in. An error in it ends the call; the receiving half raises it."""
        try:
            for request in requests:
                if not self.put(request):
                    return
            self._end(complete=True)
        except Exception as problem:
            self.problem = problem
            give_up()

    def put(self, request: Any, *, at_once: bool = False) -> bool:
        """Put one in, `at_once` also where there is no room; False when nothing can be sent any more."""
        with self._changed:
            self._changed.wait_for(lambda: at_once or self._closed or len(self._waiting) < _ROOM)
            if self._closed:
                return False
            self._waiting.append(request)
            self._changed.notify_all()
            return True

    def close(self) -> None:
        """The call is over: nothing is sent any more, and no sender waits."""
        self._end(complete=False)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._waiting)
            if self._over or not self._waiting:
                raise StopIteration
            self._changed.notify_all()
            return self._waiting.popleft()

    @property
    def _closed(self) -> bool:
        return self._complete or self._over

    def _end(self, complete: bool) -> None:
        with self._changed:
            self._complete |= complete
            self._over |= not complete
            self._changed.notify_all()


class DuplexStream(EventStream[E]):
    """Events of a call that sends at the same time, from a thread of its own: the caller's iterator may block.

    Where it blocks when the call ends, that thread ends with its next item.
    """

    def __init__(self, call: Any, outbox: Outbox, requests: Iterable[Any], incoming: Incoming[E]):
        """`call` was made with `outbox` as what it sends."""
        super().__init__(call, incoming)
        self._outbox = outbox
        if not call.add_callback(outbox.close):
            outbox.close()
        arguments = (requests, call.cancel)
        threading.Thread(target=outbox.fill, args=arguments, name="hedgerow-sending", daemon=True).start()

    @classmethod
    def begin(
        cls,
        method: Any,
        requests: Iterable[Any],
        incoming: Incoming[E],
        metadata: Metadata,
        timeout_s: float | None = None,
    ) -> Self:
        """Make the call."""
        outbox = Outbox()
        return cls(method(outbox, timeout=timeout_s, metadata=metadata), outbox, requests, incoming)

    def _send(self, request: Any) -> bool:
        """Send one between the others, at once; False when nothing can be sent any more."""
        return self._outbox.put(request, at_once=True)

    def _fill(self) -> None:
        try:
            super()._fill()
        except Cancelled:
            if self._outbox.problem is None:
                raise
            raise self._outbox.problem from None
