"""The server's side of a standing stream: each OPEN begins a task at the same `boundary.Method` that a call of gRPC's
own reaches, so spans, metrics, authorization and error mapping are the same code.

A deadline and a CANCEL stop the task; its END goes out once the task has ended, and until then the call counts as open.
Before the server stops, LEAVE asks the caller to open no more calls. The stream ends once the caller has agreed and all
calls have ended, or with the server's grace. A stream that breaks cancels its calls.

A caller that opens more calls than HELLO allows breaks the protocol, and its stream ends. For a caller a call is open
until it has the END, so no more calls may wait to be sent either, and what waits for a caller that does not read is
bounded. Its frames are read all the same: an OPEN does not wait behind the replies of others. Calls do not wait to
begin, as those of gRPC may (`max_waiting_calls`): the bound of each stream takes the place of that queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import grpc

from services.runtime.deadline import Deadline
from services.runtime.errors import CallerRefused
from services.runtime.rpc import gone_callers
from services.runtime.rpc.authorization import Admit
from services.runtime.rpc.boundary import Method
from services.runtime.rpc.local_call import Context, Metadata, Serve, run
from services.runtime.rpc.standing import frames
from services.runtime.rpc.standing.frames import BadFrame, Outgoing

_log = logging.getLogger(__name__)
_NO_METHOD = "Method not found!"  # gRPC's own words
_MOST_MS = 10**10  # to a deadline: four months, which timers can count
_CLEAN_UP_S = 1.0  # that the end of a stream waits for its calls' tasks


def handlers(
    methods: Mapping[str, Method], admit: Admit, most_calls: int, stopping: asyncio.Event
) -> grpc.GenericRpcHandler:
    """The handler of standing streams, for callers that `admit` takes. `methods`: those that can be called, by path;
    `most_calls`: of one stream at once; `stopping`: set when the server is about to stop."""

    async def serve(_: AsyncIterator[bytes], context: Any) -> None:
        try:
            admit(context)
        except CallerRefused as error:
            context.set_code(grpc.StatusCode.PERMISSION_DENIED)
            context.set_details(error.message)
            return
        await _serve(ServedCalls(methods, context, most_calls), context, stopping)

    return grpc.method_handlers_generic_handler(
        frames.SERVICE, {frames.METHOD: grpc.stream_stream_rpc_method_handler(serve)}
    )


async def _serve(calls: ServedCalls, context: Any, stopping: asyncio.Event) -> None:
    """Serve a stream to its end."""
    work = [asyncio.create_task(each) for each in (_read(calls, context), _write(calls, context))]
    leaving = asyncio.create_task(_leave(calls, stopping))
    try:
        await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (tasks := [*work, leaving]):
            task.cancel()
        await asyncio.wait([*tasks, *calls.stop()], timeout=_CLEAN_UP_S)


async def _read(calls: ServedCalls, context: Any) -> None:
    try:
        while (message := await context.read()) is not grpc.aio.EOF:
            calls.receive(message)
    except BadFrame as error:
        _log.error("a standing stream has ended: %s", error)
        context.set_code(grpc.StatusCode.INVALID_ARGUMENT)
        context.set_details(str(error))
    except grpc.aio.BaseError:
        pass  # the caller has left
    except Exception as error:  # a bug, which must not end the stream in silence
        _log.error("a standing stream has ended: %s", type(error).__name__)
        context.set_code(grpc.StatusCode.INTERNAL)


async def _write(calls: ServedCalls, context: Any) -> None:
    while not calls.over:
        await calls.filled.wait()
        calls.filled.clear()
        while message := calls.outgoing.message():
            await gone_callers.write(context, message)


async def _leave(calls: ServedCalls, stopping: asyncio.Event) -> None:
    await stopping.wait()
    calls.leave()


class ServedCalls:
    """The calls of one stream: frames in by `receive`, frames out by `outgoing`, for which `filled` is set."""

    def __init__(self, methods: Mapping[str, Method], context: Any, most_calls: int):
        self.outgoing, self.filled = Outgoing(), asyncio.Event()
        self._methods, self._context, self._most = methods, context, most_calls
        self._open: dict[int, _ServedCall] = {}
        self._left = False
        self.put(frames.HELLO, 0, frames.with_head([most_calls], (), b""))

    @property
    def is_empty(self) -> bool:
        """Whether no call is open."""
        return not self._open

    @property
    def over(self) -> bool:
        """Whether the caller has left, and all has been sent."""
        return self._left and not self._open and not self.outgoing.size

    def put(self, kind: int, number: int = 0, payload: bytes = b"") -> None:
        self.outgoing.put(kind, number, payload)
        self.filled.set()

    def put_reply(self, number: int, reply: bytes) -> None:
        self.outgoing.put_reply(number, reply)
        self.filled.set()

    def leave(self) -> None:
        """Ask the caller to open no more calls."""
        self.put(frames.LEAVE)

    def stop(self) -> Sequence[asyncio.Task[None]]:
        """Stop the servicers of the open calls. Returns their tasks."""
        return [call.stop() for call in self._open.values()]

    def receive(self, message: bytes) -> None:
        """Take a message of the caller. Raises `BadFrame`."""
        for kind, number, payload in frames.read_frames(message):
            call = self._open.get(number)  # none where it has ended meanwhile
            match kind:
                case frames.OPEN:
                    self._begin(number, payload)
                case frames.LEAVE:
                    self._left = True
                    self.filled.set()
                case frames.CREDIT if call:
                    call.add_credit(frames.read_credit(payload))
                case frames.CANCEL if call:
                    self.outgoing.drop(number)
                    call.stop()

    def _begin(self, number: int, payload: bytes) -> None:
        head, metadata, request = frames.read_head(payload)
        match head:
            case [str(path), int() | None as left_ms, *_] if number and self._is_free(number):
                left_ms = None if left_ms is None else min(max(left_ms, 0), _MOST_MS)
            case _:
                raise BadFrame("an OPEN with a number of its own, a path and a deadline was expected")
        if max(len(self._open), len(self.outgoing.calls) - (0 in self.outgoing.calls)) >= self._most:
            raise BadFrame(f"at most {self._most} calls at once")
        method = self._methods.get(path)
        if method is None or method.has_requests:
            self._end(number, grpc.StatusCode.UNIMPLEMENTED, _NO_METHOD, ())
            return
        call = _ServedCall(self, number, self._context, metadata, left_ms)
        self._open[number] = call
        call.begin(method.server_stream if method.has_replies else method.unary, request)

    def _is_free(self, number: int) -> bool:
        """Whether no call of this number is open, for its caller either."""
        return number not in self._open and number not in self.outgoing.calls

    def end(self, call: _ServedCall, code: grpc.StatusCode, details: str, trailing: Metadata) -> None:
        """Send the END of an open call. No effect the second time, when another call may have its number."""
        if self._open.get(call.number) is call:
            self._end(call.number, code, details, trailing)
            del self._open[call.number]

    def _end(self, number: int, code: grpc.StatusCode, details: str, trailing: Metadata) -> None:
        says_more = code is not grpc.StatusCode.OK or trailing or details
        body = details.encode(errors="replace")
        self.put(frames.END, number, frames.with_head([code.value[0]], trailing, body) if says_more else b"")


class _ServedCall:
    """A call, from its servicer's side."""

    task: asyncio.Task[None]

    def __init__(self, calls: ServedCalls, number: int, stream: Any, metadata: Metadata, left_ms: int | None):
        self._calls, self.number, self._left_ms = calls, number, left_ms
        deadline = Deadline.never() if left_ms is None else Deadline.after(left_ms / 1000)
        self.context: Context = _Context(self, metadata, deadline, stream)
        self._credit, self._room = frames.WINDOW_BYTES, asyncio.Event()
        self._is_late = self._is_stopped = False

    def begin(self, serve: Serve, request: bytes) -> None:
        loop = asyncio.get_running_loop()
        self.task = loop.create_task(run(self, serve, request))
        timer = None if self._left_ms is None else loop.call_later(self._left_ms / 1000, self._expire)
        self.task.add_done_callback(lambda _: self._over(timer))

    def stop(self) -> asyncio.Task[None]:
        """Cancel its task, once: the second time would be in the middle of the servicer's clean-up. Returns it."""
        if not self._is_stopped:
            self._is_stopped = True
            self.task.cancel()
        return self.task

    def add_credit(self, size: int) -> None:
        """Raises `BadFrame` for more than has been sent."""
        self._credit += size
        if self._credit > frames.WINDOW_BYTES:
            raise BadFrame(f"a credit of {size} bytes, which is more than was sent")
        self._room.set()

    async def take(self, message: bytes) -> None:
        while self._credit <= 0:
            self._room.clear()
            await self._room.wait()
        self._send(message)

    def returned(self, reply: bytes | None) -> None:
        context = self.context
        if context.code is grpc.StatusCode.OK and reply is not None:
            self._send(reply)
        self._calls.end(self, context.code, context.details, context.trailing)

    def end(self, code: grpc.StatusCode, details: str) -> None:
        if self._is_late:
            code, details = grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"
        self._calls.end(self, code, details, ())

    def _send(self, message: bytes) -> None:
        self._credit -= len(message)
        self._calls.put_reply(self.number, message)

    def _expire(self) -> None:
        self._is_late = True
        self.stop()

    def _over(self, timer: asyncio.TimerHandle | None) -> None:
        if timer:
            timer.cancel()
        self.end(grpc.StatusCode.CANCELLED, "")  # of a task that was cancelled before it began
        del self.context, self.task  # which refer to this call: a cycle would wait for the garbage collector


class _Context(Context):
    """The context of a call whose caller is that of the stream."""

    def __init__(self, call: _ServedCall, metadata: Metadata, deadline: Deadline, stream: Any):
        super().__init__(call, metadata, deadline)
        self._stream = stream

    def peer(self) -> str:
        return str(self._stream.peer())

    def auth_context(self) -> Any:
        return self._stream.auth_context()
