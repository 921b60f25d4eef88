"""One client's side of a discovery stream: requests go in, the next response comes out. No I/O, no tasks, no time.

It is the state of the world, which gRPC and Envoy both speak: a request names all that a client wants of a type. A
response about clusters or listeners must hold all of them, since one that is missing is thereby removed. Of assignments
and routes only those that changed are sent; they go when what refers to them goes.

Protocol: https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from envoy.config.core.v3 import base_pb2
from envoy.service.discovery.v3.discovery_pb2 import DiscoveryRequest, DiscoveryResponse

from services.control.snapshot import ASSIGNMENTS, CLUSTERS, LISTENERS, ROUTES, Resource, Snapshot, version
from services.runtime.errors import InvalidInput, shorten

# A type goes before the types that refer to it.
ORDER = (CLUSTERS, ASSIGNMENTS, LISTENERS, ROUTES)
ALL = "*"
MAX_TYPES, MAX_NAMES = 16, 10_000  # of one client; more is no client of ours
_WHOLE = (CLUSTERS, LISTENERS)  # asking for none of these by name is asking for all of them
_NOTHING: Mapping[str, Resource] = {}


@dataclass
class Subscription:
    """One client's state for one type of resource: its names, what was sent, and its answer.

    One response of a type is under way at a time: an answer then always belongs to what was sent last, and a slow
    client gets the newest state next, never a backlog. A refused version counts as sent, so it is sent again
    only when it has changed.
    """

    type_url: str
    names: set[str] = field(default_factory=set)
    wildcard: bool = False
    sent: dict[str, str] = field(default_factory=dict)  # versions, by name
    nonce: str = ""  # of the last response
    under_way: bool = False  # whether the last response has not been answered
    sent_version: str = ""
    acked_version: str = ""
    problem: str = ""  # why the last response was refused
    answered: bool = False  # whether there has been any response

    def wanted(self, there: Mapping[str, Resource]) -> list[Resource]:
        """The known resources that the client asked for."""
        return [each for name, each in there.items() if each.body is not None and (self.wildcard or name in self.names)]

    def changed(self, there: Mapping[str, Resource]) -> list[Resource]:
        """The resources that the client does not have in their present version."""
        return [each for each in self.wanted(there) if self.sent.get(each.name) != each.version]

    def gone(self, there: Mapping[str, Resource]) -> set[str]:
        """The names of resources that the client has, but that no longer exist or that it no longer subscribes to."""
        return {name for name in self.sent if name not in there or not (self.wildcard or name in self.names)}

    def sending(self, nonce: str, resources: Iterable[Resource], there: Mapping[str, Resource]) -> str:
        """Note a response that is about to go out; returns its version, that of all the client asked for."""
        self.sent.update((each.name, each.version) for each in resources)
        self.under_way, self.nonce, self.answered = True, nonce, True
        self.sent_version = version(self.wanted(there))
        return self.sent_version

    def answer(self, nonce: str, refusal: str | None) -> bool:
        """Take the client's word on the response with that nonce; False when it is about an older one, or repeated."""
        if nonce != self.nonce or not self.under_way:
            return False
        if refusal is None:
            self.acked_version = self.sent_version
        self.problem, self.under_way = refusal or "", False
        return True

    def forget(self, names: Iterable[str]) -> None:
        """The client does not have these any more."""
        for name in names:
            self.sent.pop(name, None)


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
    by_default = not names and subscription.type_url in _WHOLE and (first or subscription.wildcard)
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
