"""One client's side of a discovery stream: requests go in, the next response comes out. No I/O, no tasks, no time.

It is the state of the world, which gRPC and Envoy both speak: a request names all that a client wants of a type. A
response about clusters or listeners must hold all of them, since one that is missing is thereby removed. Of assignments
and routes only those that changed are sent; they go when what refers to them goes.

Protocol: https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from envoy.config.core.v3 import base_pb2
from envoy.service.discovery.v3.discovery_pb2 import DiscoveryRequest, DiscoveryResponse

from services.control.snapshot import CLUSTERS, LISTENERS, Resource, Snapshot
from services.control.subscription import ALL, MAX_NAMES, MAX_TYPES, ORDER, WILDCARD_TYPES, Subscription
from services.runtime.errors import InvalidInput, shorten

_WHOLE = (CLUSTERS, LISTENERS)
_NOTHING: Mapping[str, Resource] = {}


class DiscoveryStream:
    """Sends a client's changes in warming order: clusters, endpoints, listeners, routes. Removals are sent in reverse
    order, after the client has acknowledged all additions, so that no resource is removed while another refers to
    it."""

    def __init__(self) -> None:
        self.node = base_pb2.Node()
        self._subscriptions: dict[str, Subscription] = {}
        self._leaving: dict[str, dict[str, Resource]] = {}  # by type: what the client has, as it was sent
        self._nonces = 0

    def take(self, request: DiscoveryRequest) -> str | None:
        """Take a request in; returns why the client refuses a response, where it does. Raises `InvalidInput`."""
        if request.HasField("node"):
            self.node = request.node
        subscription = self._subscriptions.get(request.type_url)
        first = subscription is None
        if subscription is None:
            subscription = self._subscribe(request.type_url)
        refusal = request.error_detail.message or "refused without a word" if request.HasField("error_detail") else None
        answered = subscription.answer(request.response_nonce, refusal) if request.response_nonce else False
        _ask(subscription, request, first=first)
        if len(subscription.names) > MAX_NAMES:
            raise InvalidInput("resource_names", f"at most {MAX_NAMES}", len(subscription.names))
        return refusal if answered else None

    def next(self, snapshot: Snapshot) -> DiscoveryResponse | None:
        """The response that should go out now, or None."""
        ordered = list(self.subscriptions())
        for subscription in ordered:
            there = snapshot.get(subscription.type_url, _NOTHING)
            if not subscription.under_way and (response := self._additions(subscription, there)):
                return response
        if any(subscription.under_way for subscription in ordered):
            return None
        for subscription in reversed(ordered):
            there = snapshot.get(subscription.type_url, _NOTHING)
            if response := self._removals(subscription, there):
                return response
        return None

    def subscriptions(self) -> Iterator[Subscription]:
        """The subscriptions in warming order."""
        yield from sorted(self._subscriptions.values(), key=_rank)

    def _additions(self, subscription: Subscription, there: Mapping[str, Resource]) -> DiscoveryResponse | None:
        """The response with what is new or changed, or None."""
        changed = subscription.changed(there)
        if not changed and (subscription.answered or not _needs_an_answer(subscription)):
            return None
        if subscription.type_url not in _WHOLE:
            return self._response(subscription, changed, there)
        kept = self._leaving.get(subscription.type_url, {})
        staying = [kept[name] for name in sorted(subscription.gone(there)) if name in kept]
        return self._response(subscription, [*subscription.wanted(there), *staying], there)

    def _removals(self, subscription: Subscription, there: Mapping[str, Resource]) -> DiscoveryResponse | None:
        """The response that takes back what is gone, or None."""
        gone = subscription.gone(there)
        subscription.forget(gone)
        if not gone or subscription.type_url not in _WHOLE:
            return None
        return self._response(subscription, subscription.wanted(there), there)

    def _response(
        self, subscription: Subscription, resources: Iterable[Resource], there: Mapping[str, Resource]
    ) -> DiscoveryResponse:
        self._nonces += 1
        resources, nonce = list(resources), str(self._nonces)
        if subscription.type_url in _WHOLE:
            self._leaving[subscription.type_url] = {each.name: each for each in resources}
        return DiscoveryResponse(
            version_info=subscription.sending(nonce, resources, there),
            resources=[each.body for each in resources],
            type_url=subscription.type_url,
            nonce=nonce,
        )

    def _subscribe(self, type_url: str) -> Subscription:
        if len(self._subscriptions) >= MAX_TYPES:
            raise InvalidInput("type_url", f"at most {MAX_TYPES} on a stream", shorten(type_url))
        return self._subscriptions.setdefault(type_url, Subscription(type_url))


def _ask(subscription: Subscription, request: DiscoveryRequest, *, first: bool) -> None:
    """Take in what the client asks for. `first`: it had not asked for this type before."""
    if subscription.nonce and request.response_nonce != subscription.nonce:
        return  # written before our last response arrived; what the client wants now comes with its answer to that
    names = set(request.resource_names)
    by_default = not names and subscription.type_url in WILDCARD_TYPES and (first or subscription.wildcard)
    subscription.wildcard = ALL in names or by_default
    subscription.names = names - {ALL}
    if not subscription.wildcard:
        subscription.forget([name for name in subscription.sent if name not in names])


def _needs_an_answer(subscription: Subscription) -> bool:
    """An empty response says that there is nothing; about assignments and routes it would say nothing at all."""
    return subscription.type_url in _WHOLE or subscription.type_url not in ORDER


def _rank(subscription: Subscription) -> int:
    """A type that is not ours comes last: it is answered, with nothing."""
    return ORDER.index(subscription.type_url) if subscription.type_url in ORDER else len(ORDER)
