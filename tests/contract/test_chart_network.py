"""The chart's NetworkPolicies admit the connections that the mesh makes, and no other."""

from __future__ import annotations

import pytest

from hedgerow.identities import OPERATOR, SERVICES
from tests.contract.chart import VARIANTS, ask, identity, needs_helm, over, rendered, values_of
from tests.contract.network import Connection, admitted, from_outside, is_isolated, outside

pytestmark = needs_helm
everywhere = pytest.mark.parametrize("variant", VARIANTS)
DNS, HTTPS = 53, 443
OBSERVERS = {"namespaceSelector": {"matchLabels": {"hedgerow/observes": "true"}}}
CALLERS = {"namespaceSelector": {"matchLabels": {"hedgerow/calls": "true"}}}


def expected(running: set[str]) -> set[Connection]:
    """What the call flow needs: the contract's calls, health checks of the control plane, HTTP from the edge, Redis."""
    found = {
        (caller, service.name, "grpc")
        for service in SERVICES.values()
        for caller in (service.callers - {OPERATOR}) | {"control"}  # an operator comes by `kubectl port-forward`
        if {caller, service.name} <= running and caller != service.name
    }
    if "edge" in running:
        found.add(("edge", "gateway", "http"))
    if "redis" in running:
        found |= {(caller, "redis", "redis") for caller in ("gateway", "cache", "router")}
    return found


@everywhere
def test_pods_connect_along_the_call_flow_alone(variant: str) -> None:
    answer = rendered(variant)
    running = {identity(each) for each in answer.workloads.values()}
    assert admitted(answer) == expected(running)
    assert all(is_isolated(answer, each) for each in answer.workloads.values())


@everywhere
def test_callers_and_prometheus_are_all_that_comes_in(variant: str) -> None:
    answer = rendered(variant)
    for name, workload in answer.workloads.items():
        found = from_outside(answer, workload)
        wanted = [("metrics", OBSERVERS)] if name in answer.ours else []
        if name == "edge":
            wanted.append(("edge", None))
        if name == "gateway" and variant == "provider":
            wanted += [("grpc", CALLERS), ("http", CALLERS)]
        if variant == "two-regions" and name not in ("edge", "redis", "control"):
            ports = ["grpc", "http"] if name == "gateway" else ["grpc"]
            wanted += [(port, {"ipBlock": {"cidr": "10.128.0.0/14"}}) for port in ports]
        assert sorted(found, key=str) == sorted(wanted, key=str), name


@everywhere
def test_a_provider_the_hub_and_a_redis_elsewhere_are_all_that_is_reached_outside(variant: str) -> None:
    answer = rendered(variant)
    for name, workload in answer.workloads.items():
        wanted: set[int] = set()
        if name.startswith("llm-") and variant in ("gpu", "provider"):
            wanted.add(HTTPS)
        if name in ("gateway", "cache", "router") and variant == "given-secrets":
            wanted.add(6380)
        assert outside(answer, workload) - {DNS} == wanted, name


def test_traces_go_to_the_observers_and_what_the_operator_adds_is_added() -> None:
    tools = [{"ports": [{"port": 9000, "protocol": "TCP"}]}]
    more = {"tracing": {"endpoint": "http://collector.monitoring:4317"}, "gateway": {"egress": tools}}
    (answer,) = ask([over(values_of("default"), more)])
    assert outside(answer, answer.workloads["gateway"]) == {9000}
    (rule,) = answer.kind("NetworkPolicy")["traces"]["spec"]["egress"]
    assert rule == {"to": [OBSERVERS], "ports": [{"port": 4317, "protocol": "TCP"}]}


def test_network_policies_can_be_disabled() -> None:
    (answer,) = ask([{"networkPolicy": {"enabled": False}}])
    assert not answer.kind("NetworkPolicy")


@everywhere
def test_names_are_resolved_by_pods_and_by_a_cache_on_the_node(variant: str) -> None:
    names = rendered(variant).kind("NetworkPolicy")["names"]["spec"]
    assert names["podSelector"] == {"matchLabels": {"app.kubernetes.io/part-of": "hedgerow"}}
    (rule,) = names["egress"]
    assert rule["to"] == [{"namespaceSelector": {}}, {"ipBlock": {"cidr": "169.254.20.10/32"}}]
    assert {(each["port"], each["protocol"]) for each in rule["ports"]} == {(DNS, "UDP"), (DNS, "TCP")}
