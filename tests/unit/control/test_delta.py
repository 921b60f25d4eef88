"""A stream in Envoy's dialect: increments."""

from __future__ import annotations

from collections.abc import Mapping

from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest, DeltaDiscoveryResponse

from services.control.delta import Increments
from services.control.snapshot import ASSIGNMENTS, CLUSTERS, LISTENERS, ROUTES, Resource, Snapshot
from tests.unit.control.test_sotw import snapshot


class EnvoyClient:
    """A client that answers what it is sent."""

    def __init__(self) -> None:
        self.conversation = Increments()

    def ask(
        self, type_url: str, *more: str, less: tuple[str, ...] = (), has: Mapping[str, str] | None = None
    ) -> str | None:
        request = DeltaDiscoveryRequest(type_url=type_url, initial_resource_versions=has or {})
        request.resource_names_subscribe.extend(more)
        request.resource_names_unsubscribe.extend(less)
        return self.conversation.take(request)

    def answer(self, response: DeltaDiscoveryResponse, refusal: str = "") -> str | None:
        request = DeltaDiscoveryRequest(type_url=response.type_url, response_nonce=response.nonce)
        if refusal:
            request.error_detail.message = refusal
        return self.conversation.take(request)

    def hear(self, now: Snapshot) -> DeltaDiscoveryResponse | None:
        return self.conversation.next(now)

    def listen(self, now: Snapshot) -> list[tuple[str, list[str], list[str]]]:
        """Hear and take all there is: (type, what came, what went) in order."""
        heard = []
        while response := self.hear(now):
            came = [f"{each.name}{each.version}" for each in response.resources]
            heard.append((response.type_url.rpartition(".")[2], came, list(response.removed_resources)))
            self.answer(response)
        return heard


def connected(now: Snapshot) -> EnvoyClient:
    """A client that has all clusters and listeners, and their endpoints and routes."""
    client, names = EnvoyClient(), tuple(now[CLUSTERS])
    client.ask(CLUSTERS)
    client.ask(ASSIGNMENTS, *names)
    client.ask(LISTENERS)
    client.ask(ROUTES, *names)
    client.listen(now)
    return client


def test_a_client_gets_all_clusters_without_naming_any_and_later_only_what_changed():
    client = EnvoyClient()
    client.ask(CLUSTERS)
    assert client.listen(snapshot(a="1", b="1")) == [("Cluster", ["a1", "b1"], [])]
    assert client.listen(snapshot(a="1", b="2")) == [("Cluster", ["b2"], [])]


def test_changes_go_out_in_warming_order_and_what_goes_goes_last_in_reverse():
    client = connected(snapshot(a="1", b="1"))
    assert client.listen(snapshot(a="2")) == [
        ("Cluster", ["a2"], []),
        ("ClusterLoadAssignment", ["a2"], []),
        ("Listener", ["a2"], []),
        ("RouteConfiguration", ["a2"], []),
        ("RouteConfiguration", [], ["b"]),
        ("Listener", [], ["b"]),
        ("ClusterLoadAssignment", [], ["b"]),
        ("Cluster", [], ["b"]),
    ]


def test_who_comes_back_with_the_same_versions_is_sent_nothing_new():
    client = EnvoyClient()
    client.ask(CLUSTERS, has={"a": "1", "b": "1"})
    assert client.listen(snapshot(a="1", b="1")) == [("Cluster", [], [])]


def test_who_comes_back_hears_what_changed_and_what_went_meanwhile():
    client = EnvoyClient()
    client.ask(CLUSTERS, has={"a": "1", "b": "1", "gone": "1"})
    assert client.listen(snapshot(a="1", b="2")) == [("Cluster", ["b2"], []), ("Cluster", [], ["gone"])]


def test_names_can_be_added_and_dropped():
    client = EnvoyClient()
    client.ask(ASSIGNMENTS, "a")
    assert client.listen(snapshot(a="1", b="1")) == [("ClusterLoadAssignment", ["a1"], [])]
    client.ask(ASSIGNMENTS, "b")
    assert client.listen(snapshot(a="1", b="1")) == [("ClusterLoadAssignment", ["b1"], [])]
    client.ask(ASSIGNMENTS, less=("a",))
    assert client.listen(snapshot(a="2", b="2")) == [("ClusterLoadAssignment", ["b2"], [])]


def test_who_asks_again_for_what_it_has_is_sent_it_again():
    client = connected(snapshot(a="1"))
    client.ask(ASSIGNMENTS, "a")
    assert client.listen(snapshot(a="1")) == [("ClusterLoadAssignment", ["a1"], [])]


def test_an_unknown_name_is_told_to_be_missing_once_and_sent_when_it_exists():
    client = EnvoyClient()
    client.ask(ASSIGNMENTS, "later")
    assert client.listen(snapshot(a="1")) == [("ClusterLoadAssignment", [], ["later"])]
    assert client.listen(snapshot(a="2")) == []
    assert client.listen(snapshot(a="2", later="1")) == [("ClusterLoadAssignment", ["later1"], [])]
    assert client.listen(snapshot(a="2")) == [("ClusterLoadAssignment", [], ["later"])]


def test_a_first_question_is_answered_even_where_there_is_nothing():
    client = EnvoyClient()
    client.ask(LISTENERS)
    assert client.listen(snapshot()) == [("Listener", [], [])]
    assert client.listen(snapshot()) == []


def test_a_type_nobody_knows_is_answered_with_nothing():
    client = EnvoyClient()
    client.ask("type.googleapis.com/envoy.service.runtime.v3.Runtime", "x")
    assert client.listen(snapshot(a="1")) == [("Runtime", [], ["x"])]


def test_a_refused_version_is_not_sent_again_until_it_changes():
    client = connected(snapshot(a="1"))
    response = client.hear(snapshot(a="2"))
    assert response
    assert client.answer(response, refusal="no such filter") == "no such filter"
    (clusters, *_) = client.conversation.subscriptions()
    assert (clusters.problem, clusters.acked) == ("no such filter", {"a": "1"})
    assert "Cluster" not in [kind for kind, *_ in client.listen(snapshot(a="2"))]
    assert ("Cluster", ["a3"], []) in client.listen(snapshot(a="3"))


def test_names_in_a_request_with_an_old_nonce_count_all_the_same():
    client = connected(snapshot(a="1", b="1"))
    client.ask(ASSIGNMENTS, less=("b",))
    request = DeltaDiscoveryRequest(type_url=ASSIGNMENTS, response_nonce="0", resource_names_subscribe=["b"])
    request.error_detail.message = "about something long gone"
    assert client.conversation.take(request) is None
    assert client.listen(snapshot(a="1", b="1")) == [("ClusterLoadAssignment", ["b1"], [])]


def test_one_response_of_a_type_is_under_way_and_then_the_newest_state_follows():
    client = EnvoyClient()
    client.ask(CLUSTERS)
    first = client.hear(snapshot(a="1"))
    assert first
    assert client.hear(snapshot(a="2")) is None
    client.answer(first)
    assert client.listen(snapshot(a="3")) == [("Cluster", ["a3"], [])]


def test_all_can_be_asked_for_beside_names_and_given_up_again():
    client = EnvoyClient()
    client.ask(CLUSTERS, "a", "*")
    assert client.listen(snapshot(a="1", b="1")) == [("Cluster", ["a1", "b1"], [])]
    client.ask(CLUSTERS, less=("*",))
    assert client.listen(snapshot(a="2", b="2")) == [("Cluster", ["a2"], [])]


def test_of_endpoints_that_are_not_known_yet_nothing_is_said():
    known = snapshot(a="1")
    client = connected(known)
    assert client.listen({**known, ASSIGNMENTS: {"a": Resource("a")}}) == []
    fresh = EnvoyClient()
    fresh.ask(ASSIGNMENTS, "a")
    assert fresh.listen({**known, ASSIGNMENTS: {"a": Resource("a")}}) == [("ClusterLoadAssignment", [], [])]
    assert fresh.listen(known) == [("ClusterLoadAssignment", ["a1"], [])]
