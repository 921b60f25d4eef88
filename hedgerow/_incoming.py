"""A call while it is read: messages in, events and typed errors out. No I/O here; both clients share it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import grpc

from hedgerow import _convert
from hedgerow._errors import DeadlineExceeded, HedgerowError, Internal
from hedgerow._events import Answer, Event, Final, Patch, ReasoningDelta, TextDelta
from hedgerow._meter import Meter
from hedgerow._outgoing import Outgoing
from hedgerow._peer import Peer
from hedgerow._reports import PartialAnswer, StageReport
from hedgerow._resuming import Resuming
from hedgerow._sentences import SentenceSplitter
from hedgerow._status import from_rpc_error
from hedgerow.gateway.v1 import gateway_pb2 as pb

E_co = TypeVar("E_co", covariant=True)
_AS_IT_IS: Mapping[str | None, Callable[[Any], Event]] = {
    "reasoning": _convert.reasoning,
    "tool_call": _convert.tool_call,
    "stage": _convert.stage,
    "patch": _convert.patch,
    "transcript": _convert.transcript,
    "sights": _convert.sights,
    "citations": _convert.citations,
}


class Incoming(Protocol[E_co]):
    """Questions about a stream of events while it is read."""

    def events(self, message: Any) -> Sequence[E_co]:
        """The events in a message, without those of a kind that is newer than this SDK."""

    def failed(self, error: grpc.RpcError) -> None:
        """Raise what gRPC raised as a typed error, unless everything had come by then."""

    def ended(self) -> None:
        """Raise when the stream said goodbye too early."""


class IncomingAnswer:
    """One answer as it is read."""

    def __init__(
        self,
        peer: Peer,
        timeout_s: float | None,
        resuming: Resuming | None = None,
        *,
        allow_fallback: bool = False,
        offered: Collection[str] = (),
    ):
        """`resuming`: goes on at another gateway. `allow_fallback`: the gateway's fixed text counts as an answer.
        `offered`: the tools of the caller's that may be called; empty: not known."""
        self._peer, self._timeout_s, self._resuming = peer, timeout_s, resuming
        self._allow_fallback, self._offered = allow_fallback, offered
        self._meter = Meter()
        self._trace_id: str | None = None
        self._over = False
        self._text, self._reasoning, self._stages = list[str](), list[str](), list[StageReport]()
        self.answer: Answer | None = None  # once it is complete

    @property
    def partial(self) -> PartialAnswer:
        """The answer so far."""
        return PartialAnswer("".join(self._text), "".join(self._reasoning), tuple(self._stages), self._trace_id)

    def explain(self, error: HedgerowError) -> None:
        """Have an error that ends the answer say what had come by then."""
        error.partial = self.partial
        error.trace_id = error.trace_id or self._trace_id

    def events(self, message: pb.GenerateResponse) -> list[Event]:
        """The events in a message, without those of a kind that is newer than this SDK. Raises `DeadlineExceeded` for a
        fixed text that is not allowed: its text and its end come in one message, so none of it was given."""
        if self._resuming:
            for each in message.events:
                self._resuming.record(each)
        events = [event for each in message.events if (event := self._event(each))]
        if events and isinstance(last := events[-1], Final) and not self._allow_fallback:
            refuse_fallback(last.answer)
        for event in events:
            self._keep(event)
        if self.answer:
            refuse_not_offered(self.answer, self._offered)
        return events

    def _keep(self, event: Event) -> None:
        match event:
            case TextDelta(text):
                self._text.append(text)
            case Patch(text=text, replaces=True):
                self._text = [text]
            case ReasoningDelta(text):
                self._reasoning.append(text)
            case StageReport():
                self._stages.append(event)
            case Final(answer):
                self.answer = answer

    def after(self, problem: HedgerowError, pause_s: float) -> Outgoing[pb.GenerateRequest] | None:
        """The request to another gateway, `pause_s` after this one is lost; None where the problem is final."""
        rest = self._resuming.after(problem, pause_s) if self._resuming else None
        self._over = rest is None
        return rest

    def _event(self, message: pb.Event) -> Event | None:
        match message.WhichOneof("kind"):
            case "delta":
                self._meter.text(message.delta.text, message.delta.tokens)
                return _convert.delta(message.delta)
            case kind if kind in _AS_IT_IS:
                return _AS_IT_IS[kind](getattr(message, kind))
            case "accepted":
                already_accepted, self._trace_id = self._trace_id is not None, message.accepted.trace_id
                return None if already_accepted else _convert.accepted(message.accepted)
            case "final":
                self._over = True
                return Final(_convert.answer(message.final, self._meter.timings()))
        return None

    def failed(self, error: grpc.RpcError) -> None:
        """Raise what gRPC raised as a typed error, unless the answer was complete by then."""
        if not self._over:
            self._over = True
            raise from_rpc_error(error, self._peer, self._timeout_s, self._trace_id) from error

    def ended(self) -> None:
        """Raise when a stream said goodbye without an answer."""
        if not self._over:
            self._over = True
            raise Internal("the stream ended without a final event", reason="NO_FINAL", trace_id=self._trace_id)


def refuse_fallback(answer: Answer) -> None:
    """Raise `DeadlineExceeded` for the gateway's fixed text."""
    if answer.is_fallback:
        message = f"no text within {answer.budget_ms:.0f} ms; allow_fallback=True returns the gateway's fixed text"
        metadata = {"budget_ms": f"{answer.budget_ms:.0f}"}
        error = DeadlineExceeded(message, reason="BUDGET_TIMEOUT", metadata=metadata, trace_id=answer.trace_id)
        error.decisions = answer.decisions
        raise error


def refuse_not_offered(answer: Answer, offered: Collection[str]) -> None:
    """Raise `Internal` for a call of a tool that the caller has not offered."""
    for call in answer.tool_calls if offered else ():
        if call.name not in offered:
            names = ", ".join(sorted(offered))
            raise Internal(
                f"the model called the tool {call.name}, which was not offered; offered: {names}",
                reason="TOOL_NOT_OFFERED",
                metadata={"tool": call.name, "offered": names},
                trace_id=answer.trace_id,
            )


class IncomingBatch:
    """The results of a batch as they are read."""

    def __init__(self, requests: Sequence[pb.GenerateRequest], *, allow_fallback: bool = False):
        self._missing = set(range(len(requests)))
        self._offered = [{tool.name for tool in request.tools} for request in requests]
        self._allow_fallback = allow_fallback
        self._meter = Meter()

    def result(self, message: pb.GenerateBatchResponse) -> tuple[int, Answer | HedgerowError]:
        """An item's position and what became of it."""
        self._missing.discard(message.index)
        return message.index, self._result(message)

    def _result(self, message: pb.GenerateBatchResponse) -> Answer | HedgerowError:
        if not message.HasField("final"):
            return _convert.batch_error(message.error)
        answer = _convert.answer(message.final, self._meter.timings())
        try:
            if not self._allow_fallback:
                refuse_fallback(answer)
            refuse_not_offered(answer, self._offered[message.index])
        except HedgerowError as error:
            return error
        return answer

    def ended(self) -> None:
        """Raise when a stream said goodbye before every item had its result."""
        if self._missing:
            raise Internal(f"the stream ended without results for {sorted(self._missing)}", reason="NO_FINAL")


class Sentences:
    """The sentences of an answer as it arrives. After a patch that replaces the text, those of the new text."""

    def __init__(self) -> None:
        self._splitter = SentenceSplitter()

    def of(self, event: Event) -> list[str]:
        """Those that an event completes."""
        match event:
            case TextDelta(text):
                return self._splitter.feed(text)
            case Patch(text=text, replaces=True):
                self._splitter = SentenceSplitter()
                return self._splitter.feed(text)
            case Final():
                return self._splitter.flush()
        return []


class Callbacks:
    """Callbacks of `ask`."""

    def __init__(
        self,
        on_token: Callable[[str], Any] | None,
        on_sentence: Callable[[str], Any] | None,
        on_complete: Callable[[Answer], Any] | None,
        on_replaced: Callable[[str], Any] | None,
    ):
        self._on_token, self._on_sentence, self._on_complete = on_token, on_sentence, on_complete
        self._on_replaced = on_replaced
        self._sentences = Sentences()

    def notify(self, event: Event) -> Iterator[Any]:
        """Call what is due, and yield what each call returned: the asyncio client awaits coroutines."""
        match event:
            case TextDelta(text) if self._on_token:
                yield self._on_token(text)
            case Patch(text=text, replaces=True) if self._on_replaced:
                yield self._on_replaced(text)
        if self._on_sentence:
            yield from map(self._on_sentence, self._sentences.of(event))
        if isinstance(event, Final) and self._on_complete:
            yield self._on_complete(event.answer)
