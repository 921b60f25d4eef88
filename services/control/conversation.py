"""One client's side of a discovery stream: requests go in, the next response comes out. No I/O, no tasks, no time.

Two dialects share it: `sotw.py` (state of the world, which gRPC speaks) and `delta.py` (which Envoy may speak).
Protocol: https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

from envoy.config.core.v3 import base_pb2

from services.control.snapshot import Resource, Snapshot
from services.control.subscription import MAX_NAMES, MAX_TYPES, ORDER, Subscription
from services.runtime.errors import InvalidInput, shorten

_NOTHING: Mapping[str, Resource] = {}


class Conversation(ABC):
    """What changes for the client goes out in warming order: clusters, endpoints, listeners, routes. What goes, goes in
    reverse order, when everything new has been answered: nothing is taken from under what still refers to it."""

    def __init__(self) -> None:
        self.node = base_pb2.Node()
        self._subscriptions: dict[str, Subscription] = {}
        self._nonces = 0

    def take(self, request: Any) -> str | None:
        """Take a request in; returns why the client refuses a response, where it does. Raises `InvalidInput`."""
        if request.HasField("node"):
            self.node = request.node
        subscription = self._subscriptions.get(request.type_url)
        first = subscription is None
        if subscription is None:
            subscription = self._subscribe(request.type_url)
        refusal = request.error_detail.message or "refused without a word" if request.HasField("error_detail") else None
        answered = subscription.answer(request.response_nonce, refusal) if request.response_nonce else False
        self._ask(subscription, request, first=first)
        if len(subscription.names) > MAX_NAMES:
            raise InvalidInput("resource_names", f"at most {MAX_NAMES}", len(subscription.names))
        return refusal if answered else None

    def next(self, snapshot: Snapshot) -> Any:
        """The response that should go out now, or None."""
        ordered = sorted(self._subscriptions.values(), key=_rank)
        for subscription in ordered:
            there = snapshot.get(subscription.type_url, _NOTHING)
            if subscription.under_way is None and (response := self._additions(subscription, there)):
                return response
        if any(subscription.under_way is not None for subscription in ordered):
            return None
        for subscription in reversed(ordered):
            there = snapshot.get(subscription.type_url, _NOTHING)
            if response := self._removals(subscription, there):
                return response
        return None

    def subscriptions(self) -> Iterator[Subscription]:
        """In warming order."""
        yield from sorted(self._subscriptions.values(), key=_rank)

    @abstractmethod
    def _ask(self, subscription: Subscription, request: Any, *, first: bool) -> None:
        """Take in what the client asks for. `first`: it had not asked for this type before."""

    @abstractmethod
    def _additions(self, subscription: Subscription, there: Mapping[str, Resource]) -> Any:
        """The response with what is new or changed, or None."""

    @abstractmethod
    def _removals(self, subscription: Subscription, there: Mapping[str, Resource]) -> Any:
        """The response that takes back what is gone, or None."""

    def _nonce(self) -> str:
        self._nonces += 1
        return str(self._nonces)

    def _subscribe(self, type_url: str) -> Subscription:
        if len(self._subscriptions) >= MAX_TYPES:
            raise InvalidInput("type_url", f"at most {MAX_TYPES} on a stream", shorten(type_url))
        return self._subscriptions.setdefault(type_url, Subscription(type_url))


def _rank(subscription: Subscription) -> int:
    """A type that is not ours comes last: it is answered, with nothing."""
    return ORDER.index(subscription.type_url) if subscription.type_url in ORDER else len(ORDER)
