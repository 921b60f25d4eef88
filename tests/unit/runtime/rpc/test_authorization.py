"""Authorization of callers by identity."""

from __future__ import annotations

from typing import Any

import pytest
from google.rpc import code_pb2

from hedgerow.identities import IDENTITIES, SERVICES, identity_of
from services.runtime.errors import CallerRefused
from services.runtime.rpc.authorization import callers_of, probes_of
from services.runtime.rpc.boundary import to_status


class Context:
    """A call from a certificate with these SPIFFE URIs."""

    def __init__(self, *uris: str):
        self._context = {"peer_spiffe_id": [uri.encode() for uri in uris]} if uris else {}

    def auth_context(self) -> dict[str, Any]:
        return self._context


def call(identity: str) -> Context:
    return Context(f"spiffe://hedgerow/{identity}")


def test_the_identities_that_certificates_are_made_for_are_those_of_the_table() -> None:
    assert set(IDENTITIES) == SERVICES.keys() | {"edge", "operator", "redis"}
    assert set().union(*(each.callers for each in SERVICES.values())) <= set(IDENTITIES)


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("identity", IDENTITIES)
def test_a_service_serves_the_callers_of_its_row_alone(service: str, identity: str) -> None:
    admit = callers_of(service)
    if identity in SERVICES[service].callers:
        assert admit(call(identity)) == identity
    else:
        with pytest.raises(CallerRefused, match=f"{identity} may not call {service}") as caught:
            admit(call(identity))
        assert (to_status(caught.value).code, caught.value.reason) == (code_pb2.PERMISSION_DENIED, "CALLER_REFUSED")


def test_only_the_gateway_and_people_reach_what_holds_answers_and_models() -> None:
    for service in ("cache", "router", "llm", "vision", "audio"):
        assert SERVICES[service].callers == {"gateway", "operator"}
    assert SERVICES["gateway"].callers == {"edge", "operator"}


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("identity", ["control", "edge", "operator"])
def test_health_is_served_to_watchers_of_all_services(service: str, identity: str) -> None:
    assert probes_of(service)(call(identity)) == identity


def test_health_is_served_to_a_services_own_kind_and_not_to_its_neighbours() -> None:
    assert probes_of("router")(call("router")) == "router"
    with pytest.raises(CallerRefused):
        probes_of("router")(call("cache"))


@pytest.mark.parametrize(
    "context",
    [
        Context(),
        Context(""),
        Context("spiffe://elsewhere/gateway"),
        Context("spiffe://hedgerow/gateway/admin"),
        Context("spiffe://hedgerow/Gateway"),
        Context("https://hedgerow/gateway"),
        Context("spiffe://hedgerow/gateway", "spiffe://hedgerow/operator"),
    ],
)
def test_callers_without_an_identity_of_the_mesh_are_refused(context: Context) -> None:
    with pytest.raises(CallerRefused):
        callers_of("cache")(context)


def test_an_identity_of_another_trust_domain_is_not_one_of_ours() -> None:
    assert identity_of("spiffe://hedgerow/edge") == "edge"
    assert identity_of("spiffe://other/edge") == "spiffe://other/edge"
