"""A discovery stream: what goes out, when, and what becomes of answers."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.service.discovery.v3.discovery_pb2 import DiscoveryRequest, DiscoveryResponse
from google.protobuf.any_pb2 import Any as Packed

from services.control.discovery_stream import MAX_NAMES, MAX_TYPES, DiscoveryStream
from services.control.snapshot import ASSIGNMENTS, CLUSTERS, LISTENERS, ROUTES, Resource, Snapshot
from services.runtime.errors import InvalidInput


def snapshot(**versions: str) -> Snapshot:
    """`a="1"`: a service `a`, whose resources of all types have version 1."""
    return {
        url: {
            name: Resource(name, version, Packed(type_url=url, value=f"{name}{version}".encode()))
            for name, version in versions.items()
        }
        for url in (CLUSTERS, ASSIGNMENTS, LISTENERS, ROUTES)
    }


class GrpcClient:
    """A client that answers what it is sent, as gRPC does."""

    def __init__(self) -> None:
        self.stream = DiscoveryStream()
        self.last: dict[str, DiscoveryResponse] = {}
        self.names: dict[str, tuple[str, ...]] = {}
        self.acked: dict[str, str] = {}

    def ask(self, type_url: str, *names: str, nonce: str | None = None, refusal: str = "") -> str | None:
        """A request: for other names, or an answer to the last response."""
        self.names[type_url] = names
        last = self.last.get(type_url)
        request = DiscoveryRequest(type_url=type_url, resource_names=names)
        request.response_nonce = (last.nonce if last else "") if nonce is None else nonce
        if refusal:
            request.error_detail.message = refusal
        return self.stream.take(request)

    def next_response(self, now: Snapshot) -> DiscoveryResponse | None:
        response = self.stream.next(now)
        if response:
            self.last[response.type_url] = response
        return response

    def answer(self, response: DiscoveryResponse, refusal: str = "") -> str | None:
        return self.ask(response.type_url, *self.names[response.type_url], refusal=refusal)

    def listen(self, now: Snapshot) -> list[tuple[str, list[str]]]:
        """Receive and acknowledge all responses: (type, names of the resources) in their order."""
        received = []
        while response := self.next_response(now):
            received.append((response.type_url.rpartition(".")[2], content(response)))
            self.answer(response)
        return received


def content(response: DiscoveryResponse) -> list[str]:
    return [body.value.decode() for body in response.resources]


def connected(now: Snapshot, *services: str) -> GrpcClient:
    """A client that has taken all of these services."""
    client = GrpcClient()
    for type_url in (LISTENERS, ROUTES, CLUSTERS, ASSIGNMENTS):
        client.ask(type_url, *services)
    client.listen(now)
    return client


def subscription(client: GrpcClient, type_url: str) -> Any:
    return next(each for each in client.stream.subscriptions() if each.type_url == type_url)


def test_a_client_gets_the_endpoints_that_it_names_and_nothing_else():
    client = GrpcClient()
    client.ask(ASSIGNMENTS, "a", "b")
    assert client.listen(snapshot(a="1", b="1", c="1")) == [("ClusterLoadAssignment", ["a1", "b1"])]
    assert client.listen(snapshot(a="1", b="2", c="2")) == [("ClusterLoadAssignment", ["b2"])]


def test_nothing_goes_out_where_nothing_of_the_clients_has_changed():
    client = connected(snapshot(a="1", b="1"), "a")
    assert client.listen(snapshot(a="1", b="2", c="1")) == []


def test_changes_go_out_in_warming_order_all_of_clusters_and_listeners_and_of_the_others_what_changed():
    client = connected(snapshot(a="1", b="1"), "a", "b")
    assert client.listen(snapshot(a="1", b="2")) == [
        ("Cluster", ["a1", "b2"]),
        ("ClusterLoadAssignment", ["b2"]),
        ("Listener", ["a1", "b2"]),
        ("RouteConfiguration", ["b2"]),
    ]


def test_after_each_acknowledged_response_the_newest_state_follows():
    client = GrpcClient()
    client.ask(ASSIGNMENTS, "a")
    first = client.next_response(snapshot(a="1"))
    assert first
    assert client.next_response(snapshot(a="2")) is None
    assert client.next_response(snapshot(a="3")) is None
    client.answer(first)
    assert client.listen(snapshot(a="4")) == [("ClusterLoadAssignment", ["a4"])]


def test_types_do_not_wait_for_each_other():
    client = GrpcClient()
    client.ask(CLUSTERS, "a")
    client.ask(ASSIGNMENTS, "a")
    assert client.next_response(snapshot(a="1"))
    assert client.next_response(snapshot(a="1"))


def test_equal_content_has_the_same_version_on_any_stream():
    one, other = connected(snapshot(a="1"), "a"), connected(snapshot(a="1"), "a")
    assert one.last[CLUSTERS].version_info == other.last[CLUSTERS].version_info


def test_an_acknowledged_version_is_recorded():
    client = connected(snapshot(a="1"), "a")
    taken = subscription(client, CLUSTERS)
    assert taken.acked_version == taken.sent_version == client.last[CLUSTERS].version_info
    assert taken.problem == ""
    assert len({response.nonce for response in client.last.values()}) == 4, "each has a nonce of its own"


def test_a_refused_version_is_recorded_with_the_clients_words_and_not_sent_again_until_it_changes():
    client = connected(snapshot(a="1"), "a")
    response = client.next_response(snapshot(a="2"))
    assert response
    assert client.answer(response, refusal="cannot parse") == "cannot parse"
    refused = subscription(client, CLUSTERS)
    assert refused.problem == "cannot parse"
    assert refused.acked_version != refused.sent_version
    assert "Cluster" not in [kind for kind, _ in client.listen(snapshot(a="2"))]
    assert ("Cluster", ["a3"]) in client.listen(snapshot(a="3"))
    assert subscription(client, CLUSTERS).problem == ""


def test_a_refusal_without_a_word_is_still_one():
    client = GrpcClient()
    client.ask(CLUSTERS, "a")
    response = client.next_response(snapshot(a="1"))
    assert response
    request = DiscoveryRequest(type_url=CLUSTERS, resource_names=["a"], response_nonce=response.nonce)
    request.error_detail.code = 3
    assert client.stream.take(request)


def test_an_answer_with_an_old_nonce_changes_nothing():
    client = connected(snapshot(a="1"), "a")
    old = client.last[ASSIGNMENTS].nonce
    client.next_response(snapshot(a="2"))  # clusters
    response = client.next_response(snapshot(a="2"))
    assert response
    assert response.type_url == ASSIGNMENTS
    assert client.ask(ASSIGNMENTS, "a", "b", nonce=old, refusal="late") is None
    stale = subscription(client, ASSIGNMENTS)
    assert (stale.names, stale.problem, stale.under_way) == ({"a"}, "", True)


def test_an_answer_that_comes_twice_counts_once():
    client = GrpcClient()
    client.ask(CLUSTERS, "a")
    response = client.next_response(snapshot(a="1"))
    assert response
    assert client.answer(response, refusal="no") == "no"
    assert client.answer(response, refusal="no") is None


def test_unsubscribed_resources_are_not_sent_and_are_sent_again_after_a_new_subscription():
    client = connected(snapshot(a="1", b="1"), "a", "b")
    client.ask(ASSIGNMENTS, "a")
    assert "ClusterLoadAssignment" not in dict(client.listen(snapshot(a="1", b="1")))
    client.ask(ASSIGNMENTS, "a", "b")
    assert client.listen(snapshot(a="1", b="1")) == [("ClusterLoadAssignment", ["b1"])]


def test_asking_for_nothing_after_names_is_leaving_not_asking_for_all():
    client = connected(snapshot(a="1"), "a")
    client.ask(CLUSTERS)
    assert "Cluster" not in dict(client.listen(snapshot(a="2")))


@pytest.mark.parametrize("names", [(), ("*",)])
def test_clusters_and_listeners_can_all_be_asked_for(names: tuple[str, ...]):
    client = GrpcClient()
    client.ask(CLUSTERS, *names)
    assert client.listen(snapshot(a="1", b="1")) == [("Cluster", ["a1", "b1"])]
    assert client.listen(snapshot(a="1", b="1", c="1")) == [("Cluster", ["a1", "b1", "c1"])]


def test_endpoints_can_not_be_asked_for_without_a_name():
    client = GrpcClient()
    client.ask(ASSIGNMENTS)
    assert client.listen(snapshot(a="1")) == []


def test_unknown_names_get_no_response_until_they_are_known():
    client = GrpcClient()
    client.ask(ASSIGNMENTS, "later")
    assert client.listen(snapshot(a="1")) == []
    assert client.listen(snapshot(a="1", later="1")) == [("ClusterLoadAssignment", ["later1"])]


def test_an_unknown_type_is_answered_once_without_resources():
    client = GrpcClient()
    client.ask("type.googleapis.com/envoy.service.runtime.v3.Runtime", "x")
    assert client.listen(snapshot(a="1")) == [("Runtime", [])]
    assert client.listen(snapshot(a="2")) == []


def test_removed_resources_are_withdrawn_last_and_in_reverse_order():
    client = connected(snapshot(a="1", b="1"), "a", "b")
    assert client.listen(snapshot(a="2")) == [
        ("Cluster", ["a2", "b1"]),  # still there while others may refer to it
        ("ClusterLoadAssignment", ["a2"]),
        ("Listener", ["a2", "b1"]),
        ("RouteConfiguration", ["a2"]),
        ("Listener", ["a2"]),
        ("Cluster", ["a2"]),
    ]


def test_a_resource_that_returns_is_sent_again():
    client = connected(snapshot(a="1", b="1"), "a", "b")
    client.listen(snapshot(a="1"))
    assert ("ClusterLoadAssignment", ["b1"]) in client.listen(snapshot(a="1", b="1"))


def test_an_unresolved_resource_is_neither_sent_nor_withdrawn():
    known = snapshot(a="1")
    client = connected(known, "a")
    assert client.listen({**known, ASSIGNMENTS: {"a": Resource("a")}}) == []
    assert client.listen(known) == []


def test_a_client_may_not_ask_for_too_many_names_or_types():
    client = GrpcClient()
    with pytest.raises(InvalidInput, match=f"resource_names: at most {MAX_NAMES}"):
        client.ask(ASSIGNMENTS, *(f"n{number}" for number in range(MAX_NAMES + 1)))
    for number in range(MAX_TYPES - 1):
        client.ask(f"type.googleapis.com/made.Up{number}")
    with pytest.raises(InvalidInput, match="type_url: at most"):
        client.ask("type.googleapis.com/one.too.Many")
