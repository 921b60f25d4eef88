"""In the Helm chart every service finds the others: topology, gateway, engines and Envoy name the same ones."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from launcher.demo import demo_settings, public_models
from services.control import topology
from services.control.clusters import PROVIDER
from services.gateway.upstream.discovery import bootstrap
from tests.contract.chart import (
    NAMESPACE,
    VARIANTS,
    Answer,
    container,
    environment,
    identity,
    needs_helm,
    ports,
    rendered,
)

pytestmark = needs_helm
everywhere = pytest.mark.parametrize("variant", VARIANTS)


def the_topology(answer: Answer, folder: Path) -> topology.Topology:
    file = folder / "topology.yaml"
    file.write_text(answer.kind("ConfigMap")["topology"]["data"]["topology.yaml"])
    return topology.read(file)


@everywhere
def test_the_topology_names_services_that_there_are(variant: str, tmp_path: Path) -> None:
    answer = rendered(variant)
    given, services = the_topology(answer, tmp_path), answer.kind("Service")
    assert given.mtls is (variant != "provider")
    for name, service in given.services.items():
        own = [each for each in service.endpoints if "." not in each.address]
        assert [each.address for each in own] == [f"{name}:{services[name]['spec']['ports'][0]['port']}"]
        assert (service.identity or name.partition("-")[0]) == identity(answer.workloads[name])
        assert service.http is (name == "gateway")
    assert (given.edge is None) is ("edge" not in answer.workloads)
    if given.edge:
        assert int(given.edge.address.rpartition(":")[2]) == ports(answer.workloads["edge"])["edge"]


@everywhere
def test_the_gateway_finds_everything_through_the_control_plane(variant: str, tmp_path: Path) -> None:
    answer = rendered(variant)
    given, variables = the_topology(answer, tmp_path), environment(answer.ours["gateway"])
    assert {name for name in given.services if name != "gateway"} == set(
        re.findall(r"xds:///([\w-]+)", " ".join(variables.values()))
    )
    found = bootstrap(variables)
    (control,) = answer.kind("Service")["control"]["spec"]["ports"]
    assert found.control == f"control.{NAMESPACE}:{control['port']}"
    assert found.node.id == "pod-1"
    assert found.node.locality.region in (given.regions or {""})
    envoy = answer.workloads.get("edge")
    if envoy:
        (region,) = [each for each in container(envoy)["args"] if each.startswith('{"node"')]
        assert json.loads(region)["node"]["locality"]["region"] == found.node.locality.region


@everywhere
def test_xds_channels_use_the_certificates_that_are_mounted(variant: str) -> None:
    client = json.loads(environment(rendered(variant).ours["gateway"])["GRPC_XDS_BOOTSTRAP_CONFIG"])
    (credentials,) = client["xds_servers"][0]["channel_creds"]
    if variant == "provider":
        assert credentials == {"type": "insecure"}
        return
    assert client["certificate_providers"].keys() == {PROVIDER}
    for given in (credentials["config"], client["certificate_providers"][PROVIDER]["config"]):
        files = {given[key] for key in ("ca_certificate_file", "certificate_file", "private_key_file")}
        assert files == {"/tls/ca.crt", "/tls/tls.crt", "/tls/tls.key"}


@everywhere
def test_the_models_of_router_gateway_and_engines_have_the_same_names(variant: str) -> None:
    answer = rendered(variant)
    catalogue = json.loads(environment(answer.ours["router"])["HEDGEROW_ROUTER_MODELS"])
    reachable = json.loads(environment(answer.ours["gateway"])["HEDGEROW_GATEWAY_LLM_ADDRESSES"])
    assert [model["name"] for model in catalogue] == list(reachable), (
        "in the same order: the first model is the default"
    )
    for name, target in reachable.items():
        engine = environment(answer.ours[target.removeprefix("xds:///")])
        assert engine["HEDGEROW_LLM_MODEL_NAME"] == name
    if variant not in ("gpu", "provider"):
        assert catalogue == json.loads(demo_settings(public_models())["router"]["MODELS"])


def test_each_service_has_an_endpoint_in_each_region(tmp_path: Path) -> None:
    given = the_topology(rendered("two-regions"), tmp_path)
    assert given.regions.keys() == {"west", "east"}
    for name, service in given.services.items():
        port = service.endpoints[0].address.rpartition(":")[2]
        assert [(each.address, each.region) for each in service.endpoints] == [
            (f"{name}:{port}", "west"),
            (f"{name}.east.hedgerow.example.com:{port}", "east"),
        ]


def test_a_provider_alone_is_called_by_http_at_one_address() -> None:
    answer = rendered("provider")
    service = answer.kind("Service")["gateway-http"]["spec"]
    assert service.get("clusterIP") is None
    assert [each["port"] for each in service["ports"]] == [8080]
    assert answer.workloads["cache"]["spec"]["strategy"] == {"type": "Recreate"}
