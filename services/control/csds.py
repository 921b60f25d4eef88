"""The same in standard form: the client status discovery service, which tools like `grpcdebug` and Istio's read.

Source: https://www.envoyproxy.io/docs/envoy/latest/api-v3/service/status/v3/csds.proto
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping

from envoy.service.status.v3 import csds_pb2
from envoy.type.matcher.v3 import string_pb2

from services.control.ads import Client, Clients
from services.control.mesh import Mesh
from services.control.snapshot import Resource
from services.control.subscription import Subscription
from services.runtime.deadline import until_set
from services.runtime.errors import InvalidInput
from services.runtime.rpc.boundary import Call


class StatusServicer:
    """Serves `envoy.service.status.v3.ClientStatusDiscoveryService`."""

    def __init__(self, mesh: Mesh, clients: Clients):
        self._mesh, self._clients = mesh, clients
        self._drained = asyncio.Event()

    async def FetchClientStatus(
        self, request: csds_pb2.ClientStatusRequest, call: Call
    ) -> csds_pb2.ClientStatusResponse:
        wanted = [client for client in self._clients if _is_asked_for(client, request)]
        return csds_pb2.ClientStatusResponse(
            config=[self._config(client, bare=request.exclude_resource_contents) for client in wanted]
        )

    async def StreamClientStatus(
        self, requests: AsyncIterator[csds_pb2.ClientStatusRequest], call: Call
    ) -> AsyncIterator[csds_pb2.ClientStatusResponse]:
        while (request := await self._next(requests)) is not None:
            yield await self.FetchClientStatus(request, call)

    def drain(self) -> None:
        """End the streams."""
        self._drained.set()

    async def _next(self, requests: AsyncIterator[csds_pb2.ClientStatusRequest]) -> csds_pb2.ClientStatusRequest | None:
        """The next question; None when there will be none, or none is to be answered any more."""
        asked: list[csds_pb2.ClientStatusRequest] = []

        async def ask() -> None:
            async for request in requests:
                asked.append(request)
                return

        await until_set(self._drained, ask())
        return asked[0] if asked else None

    def _config(self, client: Client, *, bare: bool) -> csds_pb2.ClientConfig:
        snapshot = self._mesh.snapshot(client.region, client.kind)
        return csds_pb2.ClientConfig(
            node=client.node,
            generic_xds_configs=[
                config
                for subscription in client.conversation.subscriptions()
                for config in _configs(subscription, snapshot.get(subscription.type_url, {}), bare=bare)
            ],
        )


def _configs(
    subscription: Subscription, there: Mapping[str, Resource], *, bare: bool
) -> Iterator[csds_pb2.ClientConfig.GenericXdsConfig]:
    names = set(there) | subscription.names if subscription.wildcard else subscription.names
    for name in sorted(names | subscription.sent.keys()):
        config = csds_pb2.ClientConfig.GenericXdsConfig(
            type_url=subscription.type_url,
            name=name,
            version_info=subscription.sent.get(name, ""),
            config_status=_status(subscription, name, there.get(name)),
        )
        resource = there.get(name)
        if not bare and resource and resource.body and resource.version == subscription.sent.get(name):
            config.xds_config.CopyFrom(resource.body)
        if name in subscription.refused:
            config.error_state.details = subscription.refused[name]
            config.error_state.version_info = subscription.sent.get(name, "")
        yield config


def _status(subscription: Subscription, name: str, now: Resource | None) -> csds_pb2.ConfigStatus:
    sent = subscription.sent.get(name)
    if sent is None:
        return csds_pb2.NOT_SENT
    if name in subscription.refused:
        return csds_pb2.ERROR
    is_new = now is not None and now.version == sent
    return csds_pb2.SYNCED if is_new and subscription.acked.get(name) == sent else csds_pb2.STALE


def _is_asked_for(client: Client, request: csds_pb2.ClientStatusRequest) -> bool:
    """One matcher that matches is enough; without any, all are asked for."""
    matchers = [_matches(matcher.node_id, client.node.id) for matcher in request.node_matchers]
    return not matchers or any(matchers)


def _matches(matcher: string_pb2.StringMatcher, text: str) -> bool:
    kind = matcher.WhichOneof("match_pattern")
    if kind is None:
        return True
    if kind not in ("exact", "prefix", "suffix", "contains"):
        raise InvalidInput("node_matchers.node_id", "exact, prefix, suffix or contains", kind)
    wanted = getattr(matcher, kind)
    if matcher.ignore_case:
        wanted, text = wanted.lower(), text.lower()
    found: dict[str, bool] = {
        "exact": text == wanted,
        "prefix": text.startswith(wanted),
        "suffix": text.endswith(wanted),
        "contains": wanted in text,
    }
    return found[kind]
