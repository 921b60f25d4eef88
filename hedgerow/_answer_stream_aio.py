"""An answer as it arrives, for the asyncio client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from hedgerow._base_aio import CLOSED, pause
from hedgerow._errors import Cancelled, HedgerowError, NotFound, Unavailable
from hedgerow._events import Answer, Event
from hedgerow._incoming import IncomingAnswer, Sentences
from hedgerow._outgoing import Outgoing
from hedgerow._peer import Peer
from hedgerow._reports import PartialAnswer
from hedgerow._resuming import HUNG_UP, Resuming
from hedgerow._streams_aio import AsyncEventStream
from hedgerow.gateway.v1.gateway_pb2 import GenerateRequest

_PAUSE_S = 0.02  # in which a channel notices lost connections
_RECONNECT_S = 0.15  # in which a channel connects again: until then, calls fail at once


class AsyncAnswerStream(AsyncEventStream[Event]):
    """The events of an answer: `async for event in stream`.

    Leaving `async with`, `cancel()`, or deleting the object cancels the call, and stops the engine. If the connection
    to the gateway is lost, another gateway of the target continues the text, and the answer is marked `llm:resumed`.
    After `cancel()` the iteration ends without an error; `partial` has the text so far.
    """

    def __init__(
        self,
        begin: Callable[[Outgoing[GenerateRequest]], Any],
        out: Outgoing[GenerateRequest],
        peer: Peer,
        *,
        allow_fallback: bool = False,
    ):
        self._begin = begin
        offered = {tool.name for tool in out.request.tools}
        self._answer = IncomingAnswer(
            peer, out.timeout_s, Resuming(out), allow_fallback=allow_fallback, offered=offered
        )
        super().__init__(begin(out), self._answer)

    @property
    def partial(self) -> PartialAnswer:
        """The answer so far, also after `cancel()`."""
        return self._answer.partial

    @property
    def answer(self) -> Answer | None:
        """The answer after its end; None before."""
        return self._answer.answer

    async def sentences(self) -> AsyncIterator[str]:
        """Iterate over whole sentences instead of events.

        With `repair` or `cascade_at_once` a new text may replace the old one; its sentences then begin at its start.
        """
        sentences = Sentences()
        async for event in self:
            for sentence in sentences.of(event):
                yield sentence

    async def _fill(self) -> None:
        try:
            await self._fill_resumed()
        except HedgerowError as problem:
            self._answer.explain(problem)
            raise

    async def _fill_resumed(self) -> None:
        lost: HedgerowError | None = None
        while True:
            try:
                return await super()._fill()
            except (Unavailable, NotFound) as problem:  # NotFound: `NOT_KEPT`
                pause_s = _RECONNECT_S if problem.reason == HUNG_UP else _PAUSE_S
                rest, lost = self._answer.after(problem, pause_s), lost or problem
                if rest is None:
                    raise lost from None
            except HedgerowError as problem:
                if lost and problem.code == "UNIMPLEMENTED":  # no model can continue a text
                    raise lost from None
                raise
            await pause(pause_s)
            try:
                self._call = self._begin(rest)
            except CLOSED:
                raise Cancelled("the client was closed") from None
            self._messages = aiter(self._call)
            if self._cancelled:
                self._call.cancel()
