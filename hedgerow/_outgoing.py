"""A call before it is sent: request, deadline and metadata. No I/O here; both clients share it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message as Proto

from hedgerow._chat_input import refuse_unknown
from hedgerow._errors import invalid
from hedgerow._fields import set_fields
from hedgerow._options import Messages, Request
from hedgerow._peer import Peer
from hedgerow._request import audio_format, generate_request, refuse_too_large
from hedgerow._speech import AudioFormat
from hedgerow.gateway.v1 import gateway_pb2 as pb

DEFAULT_TARGET = "127.0.0.1:50050"
METHODS = (
    "allow_fallback",
    "on_token",
    "on_sentence",
    "on_complete",
    "on_replaced",
    "into",
)  # options of a method, not of a request
GRACE_S = 1.0  # after the budget, at which the gateway ends an answer itself
NO_BUDGET_DEADLINE_S = 3_600.0  # longer than the budget of any gateway, which ends the answer

P = TypeVar("P", bound=Proto)


@dataclass(frozen=True, slots=True)
class Outgoing(Generic[P]):
    """A call that is ready to be sent."""

    request: P
    timeout_s: float
    metadata: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Caller:
    """The peer, the caller, and defaults for all calls."""

    peer: Peer
    default_budget_ms: int | None

    def generate(self, question: Request, method: str = "stream()") -> Outgoing[pb.GenerateRequest]:
        """One question. Errors name `method`."""
        refuse_unknown(method, question, METHODS)
        request = self._request(question)
        return self._outgoing(request, [request])

    def batch(self, items: Iterable[Messages | Request], shared: Request) -> Outgoing[pb.GenerateBatchRequest]:
        """Several questions in one call; an item's options override those of the call."""
        refuse_unknown("batch()", shared, METHODS)
        if isinstance(items, str | Mapping):
            raise invalid(
                "requests", "a sequence of questions", f"one {'text' if isinstance(items, str) else 'question'}"
            )
        requests = [self._request({**shared, **_as_request(index, item)}) for index, item in enumerate(items)]
        return self._outgoing(pb.GenerateBatchRequest(requests=requests), requests)

    def converse(self, shared: Request, audio: AudioFormat, pause_ms: int | None) -> pb.ConverseRequest:
        """The first message of a conversation: the options of each turn, and the form of the audio."""
        refuse_unknown("converse()", shared, METHODS)
        spoken = pb.ConverseOptions(request=self._request(shared, spoken=True), format=audio_format(audio))
        set_fields(spoken, "", pause_ms=pause_ms)
        opening = pb.ConverseRequest(options=spoken)
        refuse_too_large(opening)
        return opening

    def _request(self, request: Request, spoken: bool = False) -> pb.GenerateRequest:
        if request.get("budget_ms") is None:
            request = {**request, "budget_ms": self.default_budget_ms}
        return generate_request(spoken=spoken, **request)

    def _outgoing(self, message: P, requests: list[pb.GenerateRequest]) -> Outgoing[P]:
        refuse_too_large(message)
        return Outgoing(message, max(map(_deadline_s, requests), default=GRACE_S), self.peer.metadata())


def _as_request(index: int, item: Messages | Request) -> Request:
    if not isinstance(item, Mapping):
        return {"messages": item}
    refuse_unknown(f"requests[{index}]", item)
    return item


def _deadline_s(request: pb.GenerateRequest) -> float:
    if not request.HasField("budget_ms"):
        return NO_BUDGET_DEADLINE_S
    return max(request.budget_ms, 0) / 1000 + GRACE_S
