"""The events of one answer, on their way from the stages that write them to the client.

A stage writes events and continues; they are sent when the stage next waits. One message costs gateway and client about
0.1 ms, as much as all of the code here. So the reports of ended stages wait up to 2 ms for a text to travel with, and
text that comes within 2 ms of a message with text is sent in the next one. No model writes that fast for long, and one
that does, or replays a stored text, does not take the gateway from other callers.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

from hedgerow.gateway.v1 import gateway_pb2 as pb

Send = Callable[[pb.GenerateResponse], Awaitable[None]]
_COALESCING_S = 0.002  # the loop's clock counts whole milliseconds


def _none() -> Sequence[pb.Event]:
    return ()


class EventWriter:
    """The events of an answer, in order. `accepted` makes the first one, which carries the plan."""

    __slots__ = (
        *("_accepted", "_held", "_late", "_lock", "_loop", "_paced_from", "_problem", "_send", "_sending", "_timer"),
        *("_written", "events"),
    )

    def __init__(self, accepted: Callable[[], pb.Accepted] | None = None):
        self.events: list[pb.Event] = []  # not sent yet
        self._accepted = accepted
        self._send: Send | None = None
        self._late: Callable[[], Sequence[pb.Event]] = _none
        self._lock = asyncio.Lock()  # one message at a time
        self._loop = asyncio.get_running_loop()  # which costs a call of the system in Python 3.11
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.Task[None] | None = None
        self._problem: Exception | None = None
        self._held = False
        self._written = False  # whether some of `events` are more than notes
        self._paced_from = -math.inf  # when the last message of that kind left

    def open(self, send: Send | None, late: Callable[[], Sequence[pb.Event]], *, plan: bool = True) -> None:
        """Send messages with `send`; None: no client reads them. `late` is called before each message, for events of
        stages whose time was over. Without `plan` there is no first event."""
        self._send, self._late = send, late
        if not plan:
            self._accepted = None
            return
        self._schedule(0)  # the plan leaves while the first stage waits; with the first text, it would delay that

    def write(self, *events: pb.Event) -> None:
        """Send these events as soon as the stage waits."""
        self.events += events
        self._written = True
        self._schedule()

    def note(self, *events: pb.Event) -> None:
        """Send these events with the next written ones, or after 2 ms."""
        self.events += events
        if self._timer is None:
            self._schedule(_COALESCING_S)

    @contextmanager
    def together(self) -> Iterator[int]:
        """Events written inside leave in one message. Yields the index in `events` of the first of them."""
        self._held = True
        try:
            yield len(self.events)
        finally:
            self._held = False
            self._schedule()

    async def flow(self) -> None:
        """`flush` the text that has come, unless it has to wait for more."""
        if self._due_s() <= 0:
            await self.flush()

    async def flush(self) -> None:
        """Send all events, and wait until the client takes them: a slow client holds up the stage. Raises the error of
        an earlier sending."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        async with self._lock:
            if self._problem:
                raise self._problem
            if self._send is None:
                self.events.clear()
            elif self.events or self._accepted:
                if self._written:
                    self._written, self._paced_from = False, self._loop.time()
                await self._send(self._take())

    async def end(self, *events: pb.Event) -> None:
        """Send these events, the last ones of the answer. Events of late stages are dropped from now on."""
        self._late = _none
        self.write(*events)
        await self.flush()

    async def arrived(self) -> None:
        """Wait until the client has taken the message that is being sent, and send nothing after it."""
        self._send = None
        async with self._lock:
            pass

    def close(self) -> None:
        """Send nothing more."""
        if self._timer:
            self._timer.cancel()
        if self._sending:
            self._sending.cancel()
        self._send, self._accepted, self._late, self._timer = None, None, _none, None

    def _take(self) -> pb.GenerateResponse:
        self.events += self._late()
        if self._accepted:
            self.events.insert(0, pb.Event(accepted=self._accepted()))
            self._accepted = None
        message = pb.GenerateResponse(events=self.events)
        self.events.clear()
        return message

    def _due_s(self) -> float:
        """Seconds until written events may be sent."""
        return max(0.0, self._paced_from + _COALESCING_S - self._loop.time())

    def _schedule(self, delay_s: float | None = None) -> None:
        """Send in so many seconds; None: as soon as written events may be sent."""
        if self._send is None or self._held:
            return
        delay_s = self._due_s() if delay_s is None else delay_s
        if self._timer:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, self._start)

    def _start(self) -> None:
        self._timer = None
        if self._held:
            return
        if self._sending is None or self._sending.done():
            self._sending = self._loop.create_task(self._flush())

    async def _flush(self) -> None:
        """Send events beside the stages. The next flush of a stage raises the error of this one."""
        try:
            while (self.events or self._accepted) and not self._held:
                await self.flush()
                await asyncio.sleep(self._due_s())
        except Exception as problem:
            self._problem = problem
