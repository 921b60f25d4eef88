"""A call before it is made: request, deadline and metadata. No I/O here; both clients share it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from google.protobuf.message import Message as Proto

from hedgerow._options import Messages, Options, Request
from hedgerow._propagation import trace_headers
from hedgerow._request import generate_request, refuse_too_large
from hedgerow.gateway.v1 import gateway_pb2 as pb

DEFAULT_TARGET = "127.0.0.1:50050"
GRACE_S = 1.0  # the gateway ends an answer at its budget; the call's deadline only catches a gateway that does not
NO_BUDGET_DEADLINE_S = 60.0

P = TypeVar("P", bound=Proto)


@dataclass(frozen=True, slots=True)
class Outgoing(Generic[P]):
    """A call, ready to be made."""

    request: P
    timeout_s: float
    metadata: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls whom, and what holds for all calls."""

    target: str
    api_key: str | None
    default_budget_ms: int | None

    def generate(self, messages: Messages, options: Options) -> Outgoing[pb.GenerateRequest]:
        """One question."""
        request = self._request(messages, options)
        return self._outgoing(request, [request])

    def batch(self, items: Iterable[Messages | Request], options: Options) -> Outgoing[pb.GenerateBatchRequest]:
        """Several questions in one call; an item's own options overrule the shared ones."""
        requests = [self._item(item, options) for item in items]
        return self._outgoing(pb.GenerateBatchRequest(requests=requests), requests)

    def _item(self, item: Messages | Request, options: Options) -> pb.GenerateRequest:
        if not isinstance(item, Mapping):
            return self._request(item, options)
        own = {name: value for name, value in item.items() if name != "messages"}
        return self._request(item["messages"], cast(Options, {**options, **own}))

    def _request(self, messages: Messages, options: Options) -> pb.GenerateRequest:
        if options.get("budget_ms") is None:
            options = {**options, "budget_ms": self.default_budget_ms}
        return generate_request(messages, **options)

    def _outgoing(self, message: P, requests: list[pb.GenerateRequest]) -> Outgoing[P]:
        refuse_too_large(message)
        key = (("authorization", f"Bearer {self.api_key}"),) if self.api_key else ()
        return Outgoing(message, max(map(_deadline_s, requests), default=GRACE_S), (*key, *trace_headers()))


def _deadline_s(request: pb.GenerateRequest) -> float:
    if not request.HasField("budget_ms"):
        return NO_BUDGET_DEADLINE_S
    return max(request.budget_ms, 0) / 1000 + GRACE_S
