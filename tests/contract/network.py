"""Which connections the chart's NetworkPolicies admit, by the rules of Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.contract.chart import Answer, Manifest, identity, labels, ports, selects

Connection = tuple[str, str, str]  # from, to (identities), port (its name)


def admitted(answer: Answer) -> set[Connection]:
    """All connections between pods of the mesh. Both ends must admit one: the caller's egress, the other's ingress."""
    policies = [each["spec"] for each in answer.kind("NetworkPolicy").values()]
    return {
        (identity(caller), identity(called), name)
        for caller in answer.workloads.values()
        for called in answer.workloads.values()
        for name, number in ports(called).items()
        if caller is not called
        and _admits(policies, "egress", "to", caller, called, (name, number))
        and _admits(policies, "ingress", "from", called, caller, (name, number))
    }


def outside(answer: Answer, workload: Manifest) -> set[int]:
    """Ports at which its pods reach any address, of the cluster or beyond."""
    rules = _rules([each["spec"] for each in answer.kind("NetworkPolicy").values()], "egress", labels(workload))
    return {port["port"] for rule in rules if "to" not in rule for port in rule.get("ports", ())}


def from_outside(answer: Answer, workload: Manifest) -> list[tuple[str, Any]]:
    """(port, peer) of what is let in besides pods of the mesh; the peer is None for any address."""
    rules = _rules([each["spec"] for each in answer.kind("NetworkPolicy").values()], "ingress", labels(workload))
    return [
        (port["port"], peer)
        for rule in rules
        for peer in rule.get("from", [None])
        for port in rule["ports"]
        if peer is None or "podSelector" not in peer
    ]


def is_isolated(answer: Answer, workload: Manifest) -> bool:
    """Whether nothing is admitted but what a rule admits."""
    chosen = [
        each["spec"]
        for each in answer.kind("NetworkPolicy").values()
        if selects(each["spec"]["podSelector"], labels(workload))
    ]
    return {kind for each in chosen for kind in each["policyTypes"]} == {"Ingress", "Egress"}


def _admits(
    policies: list[Manifest], way: str, side: str, own: Manifest, other: Manifest, port: tuple[str, int]
) -> bool:
    for rule in _rules(policies, way, labels(own)):
        peers = rule.get(side)
        reached = peers is None or any(
            "podSelector" in peer and "namespaceSelector" not in peer and selects(peer["podSelector"], labels(other))
            for peer in peers
        )
        if reached and ("ports" not in rule or any(each["port"] in port for each in rule["ports"])):
            return True
    return False


def _rules(policies: list[Manifest], way: str, given: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
    for policy in policies:
        if way.capitalize() in policy["policyTypes"] and selects(policy["podSelector"], given):
            yield from policy.get(way, ())
