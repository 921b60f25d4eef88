"""Increments: a request names what a client wants from now on, and what no longer. Envoy speaks this where its
bootstrap says `DELTA_GRPC`.

A client that comes back says which versions it has: what has not changed since is not sent again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from envoy.service.discovery.v3 import discovery_pb2

from services.control.conversation import Conversation
from services.control.snapshot import Resource
from services.control.subscription import ALL, WILDCARD_TYPES, Subscription


class Increments(Conversation):
    """`DeltaAggregatedResources`."""

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[str, set[str]] = {}  # by type: names the client knows not to exist

    def _ask(self, subscription: Subscription, request: discovery_pb2.DeltaDiscoveryRequest, *, first: bool) -> None:
        more, less = set(request.resource_names_subscribe), set(request.resource_names_unsubscribe)
        told = self._told.setdefault(subscription.type_url, set())
        if first:
            subscription.sent.update(request.initial_resource_versions)
            subscription.wildcard = not more and subscription.type_url in WILDCARD_TYPES
        else:
            subscription.forget(more)  # who asks again is to be sent it again
        subscription.wildcard = (subscription.wildcard or ALL in more) and ALL not in less
        subscription.names = (subscription.names | more) - less - {ALL}
        told -= more | less
        if not subscription.wildcard:
            subscription.forget([name for name in subscription.sent if name not in subscription.names])

    def _additions(
        self, subscription: Subscription, there: Mapping[str, Resource]
    ) -> discovery_pb2.DeltaDiscoveryResponse | None:
        changed = subscription.changed(there)
        self._told[subscription.type_url] -= {each.name for each in changed}
        return self._response(subscription, changed, (), there) if changed else None

    def _removals(
        self, subscription: Subscription, there: Mapping[str, Resource]
    ) -> discovery_pb2.DeltaDiscoveryResponse | None:
        told = self._told[subscription.type_url]
        gone = subscription.gone(there) | (subscription.names - there.keys() - told)
        if not gone and subscription.answered:
            return None
        subscription.forget(gone)
        told |= gone & subscription.names
        return self._response(subscription, (), sorted(gone), there)  # an empty one too, for who waits for the first

    def _response(
        self,
        subscription: Subscription,
        resources: Iterable[Resource],
        removed: Iterable[str],
        there: Mapping[str, Resource],
    ) -> discovery_pb2.DeltaDiscoveryResponse:
        resources, nonce = list(resources), self._nonce()
        return discovery_pb2.DeltaDiscoveryResponse(
            system_version_info=subscription.sending(nonce, resources, there),
            resources=[
                discovery_pb2.Resource(name=each.name, version=each.version, resource=each.body) for each in resources
            ],
            removed_resources=list(removed),
            type_url=subscription.type_url,
            nonce=nonce,
        )
