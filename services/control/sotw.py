"""The state of the world: a request names all that a client wants of a type. gRPC speaks this.

A response about clusters or listeners must hold all of them, since one that is missing is thereby removed. Of
assignments and routes only those that changed are sent; they go when what refers to them goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from envoy.service.discovery.v3 import discovery_pb2

from services.control.conversation import Conversation
from services.control.snapshot import CLUSTERS, LISTENERS, Resource
from services.control.subscription import ALL, ORDER, WILDCARD_TYPES, Subscription

_WHOLE = (CLUSTERS, LISTENERS)


class StateOfTheWorld(Conversation):
    """`StreamAggregatedResources`."""

    def __init__(self) -> None:
        super().__init__()
        self._leaving: dict[str, dict[str, Resource]] = {}  # by type: what the client has, as it was sent

    def _ask(self, subscription: Subscription, request: discovery_pb2.DiscoveryRequest, *, first: bool) -> None:
        if subscription.nonce and request.response_nonce != subscription.nonce:
            return  # written before our last response arrived; what the client wants now comes with its answer to that
        names = set(request.resource_names)
        by_default = not names and subscription.type_url in WILDCARD_TYPES and (first or subscription.wildcard)
        subscription.wildcard = ALL in names or by_default
        subscription.names = names - {ALL}
        if not subscription.wildcard:
            subscription.forget([name for name in subscription.sent if name not in names])

    def _additions(
        self, subscription: Subscription, there: Mapping[str, Resource]
    ) -> discovery_pb2.DiscoveryResponse | None:
        changed = subscription.changed(there)
        if not changed and (subscription.answered or not self._needs_an_answer(subscription)):
            return None
        if subscription.type_url not in _WHOLE:
            return self._response(subscription, changed, there)
        kept = self._leaving.get(subscription.type_url, {})
        staying = [kept[name] for name in sorted(subscription.gone(there)) if name in kept]
        return self._response(subscription, [*subscription.wanted(there), *staying], there)

    def _removals(
        self, subscription: Subscription, there: Mapping[str, Resource]
    ) -> discovery_pb2.DiscoveryResponse | None:
        gone = subscription.gone(there)
        subscription.forget(gone)
        if not gone or subscription.type_url not in _WHOLE:
            return None
        return self._response(subscription, subscription.wanted(there), there)

    def _needs_an_answer(self, subscription: Subscription) -> bool:
        """An empty response says that there is nothing; about assignments and routes it would say nothing at all."""
        return subscription.type_url in _WHOLE or subscription.type_url not in ORDER

    def _response(
        self, subscription: Subscription, resources: Iterable[Resource], there: Mapping[str, Resource]
    ) -> discovery_pb2.DiscoveryResponse:
        resources, nonce = list(resources), self._nonce()
        if subscription.type_url in _WHOLE:
            self._leaving[subscription.type_url] = {each.name: each for each in resources}
        return discovery_pb2.DiscoveryResponse(
            version_info=subscription.sending(nonce, resources, there),
            resources=[each.body for each in resources],
            type_url=subscription.type_url,
            nonce=nonce,
        )
