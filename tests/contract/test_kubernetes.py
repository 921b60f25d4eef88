"""The Kubernetes manifests are valid and fit together: with each other, the images, the settings and the contracts.

What needs them rendered is left out where there is no kubectl; their schemas are checked everywhere.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import kubernetes_validate.utils
import pytest
import yaml

from docs.settings import settings_classes
from hedgerow.identities import SERVICES
from launcher.demo import demo_settings, public_models
from launcher.envoy import write_bootstrap
from services.control import topology
from services.control.clusters import PROVIDER
from services.gateway.upstream.discovery import bootstrap
from services.runtime.process.config import load
from services.runtime.process.workers import SLACK_S
from tests.contract.manifests import (
    KUBECTL,
    ROOT,
    VARIANTS,
    Manifest,
    Variant,
    as_written,
    container,
    environment,
    identity,
    kustomizations,
    labels,
    named_by,
    pod,
    rendered,
    selects,
)

REPOSITORY = Path(__file__).parents[2]
OPERATIONS = (REPOSITORY / "docs/operations.md").read_text()
OLDEST = "1.30"  # of Kubernetes
VERSIONS = (OLDEST, ".".join(kubernetes_validate.latest_version().split(".")[:2]))
FOREIGN = "cert-manager.io/"  # kinds whose schemas are not Kubernetes' own
CLASSES = {cls.__module__.split(".")[1]: cls for cls in settings_classes()}


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> Variant:
    if not KUBECTL:
        pytest.skip("no kubectl to render the manifests with")
    return rendered(request.param)


@pytest.fixture(params=[name for name in VARIANTS if name != "base"])
def complete(request: pytest.FixtureRequest) -> Variant:
    """A variant with both components."""
    if not KUBECTL:
        pytest.skip("no kubectl to render the manifests with")
    return rendered(request.param)


@pytest.fixture(scope="module", autouse=True)
def _schemas_are_read_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kubernetes_validate.utils, "schema_contents", cache(kubernetes_validate.utils.schema_contents))
        yield


def refuse_invalid(manifest: Manifest) -> None:
    if not manifest["apiVersion"].startswith(FOREIGN):
        for version in VERSIONS:
            kubernetes_validate.validate(manifest, version, strict=True)


def the_topology(variant: Variant, folder: Path) -> topology.Topology:
    file = folder / "topology.yaml"
    file.write_text(variant.kind("ConfigMap")["topology"]["data"]["topology.yaml"])
    return topology.read(file)


def exposed(service: str) -> int:
    """The port that its image listens on."""
    text = (REPOSITORY / f"deploy/docker/{service}.Dockerfile").read_text()
    return int(re.findall(r"^EXPOSE (\d+)$", text, flags=re.MULTILINE)[0])


def test_every_manifest_is_valid_as_it_is_written() -> None:
    written = list(as_written())
    assert len(written) > 50
    for _, manifest in written:
        refuse_invalid(manifest)


def test_every_file_is_part_of_something() -> None:
    used = {(folder / name).resolve() for folder, each in kustomizations().items() for name in named_by(each)}
    files = {path.resolve() for path in ROOT.rglob("*.yaml") if path.name != "kustomization.yaml"}
    assert files - used == set()
    assert all(path.exists() for path in used)


def test_every_manifest_is_valid_and_in_the_namespace_as_it_is_applied(variant: Variant) -> None:
    for manifest in variant.manifests:
        refuse_invalid(manifest)
        if manifest["kind"] != "Namespace":
            assert manifest["metadata"]["namespace"] == "hedgerow"


def test_every_service_of_ours_is_there(variant: Variant) -> None:
    assert {identity(each) for each in variant.ours.values()} == set(SERVICES)


def test_the_environment_is_settings_that_the_service_takes(
    variant: Variant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    the_topology(variant, tmp_path)
    for workload in variant.ours.values():
        who = identity(workload)
        for name in [name for name in os.environ if name.startswith("HEDGEROW_")]:
            monkeypatch.delenv(name)
        told = {name: value for name, value in environment(workload).items() if name.startswith("HEDGEROW_")}
        assert all(name.startswith(f"HEDGEROW_{who.upper()}_") for name in told)
        told[f"HEDGEROW_{who.upper()}_ADDRESS"] = f"0.0.0.0:{exposed(who)}"  # the image's
        for name, value in told.items():
            monkeypatch.setenv(name, value.replace("/etc/hedgerow/topology.yaml", str(tmp_path / "topology.yaml")))
        settings = load(CLASSES[who], [], prog=who)
        assert settings.tls_dir == Path("/tls")
        assert 0 < settings.lame_duck_ms < settings.grace_ms
        assert pod(workload)["terminationGracePeriodSeconds"] > settings.grace_ms / 1000 + SLACK_S


def test_what_a_variable_refers_to_stands_before_it(variant: Variant) -> None:
    for workload in variant.workloads.values():
        told = environment(workload)
        texts = [*told.values(), *container(workload).get("args", ())]
        named = {name for text in texts for name in re.findall(r"\$\((\w+)\)", text)}
        assert named - told.keys() == set()
        assert not any(re.search(r"\$\(\w+\)", text) for text in told.values())


def test_selectors_select_what_they_are_for(variant: Variant) -> None:
    for name, workload in variant.workloads.items():
        assert selects(workload["spec"]["selector"], labels(workload))
        others = [labels(each) for other, each in variant.workloads.items() if other != name]
        assert not any(selects(workload["spec"]["selector"], each) for each in others)
    for name, each in variant.kind("PodDisruptionBudget").items():
        assert selects(each["spec"]["selector"], labels(variant.workloads[name]))


def test_a_service_leads_to_a_port_that_its_pods_listen_on(variant: Variant) -> None:
    for name, service in variant.kind("Service").items():
        workload = variant.workloads[name]
        assert selects({"matchLabels": service["spec"]["selector"]}, labels(workload))
        ports = {each["name"]: each["containerPort"] for each in container(workload)["ports"]}
        assert all(each["targetPort"] in ports for each in service["spec"]["ports"])
        if name in variant.ours:
            (port,) = service["spec"]["ports"]
            assert port["port"] == ports["grpc"] == exposed(identity(workload))
            assert service["spec"]["clusterIP"] == "None", "the control plane looks up pods, not a virtual address"


def test_replicas_survive_a_disruption_and_are_spread_over_zones_and_hosts(variant: Variant) -> None:
    for name, workload in {**variant.ours, "edge": variant.workloads["edge"]}.items():
        scaler = variant.kind("HorizontalPodAutoscaler").get(name)
        assert (scaler["spec"]["minReplicas"] if scaler else workload["spec"]["replicas"]) >= 2
        assert variant.kind("PodDisruptionBudget")[name]["spec"]["maxUnavailable"] == 1
        spread = pod(workload)["topologySpreadConstraints"]
        assert {each["topologyKey"] for each in spread} == {"topology.kubernetes.io/zone", "kubernetes.io/hostname"}
        for each in spread:
            assert selects(each["labelSelector"], labels(workload))
            assert labels(workload).keys() >= set(each.get("matchLabelKeys", ()))


def test_pods_run_as_nobody_in_particular_and_may_write_nowhere_but_into_volumes(variant: Variant) -> None:
    for workload in variant.workloads.values():
        secure = pod(workload)["securityContext"]
        assert (secure["runAsNonRoot"], secure["runAsUser"]) == (True, 10001)
        assert secure["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container(workload)["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_pods_get_no_token_of_the_cluster(variant: Variant) -> None:
    for workload in variant.workloads.values():
        account = variant.kind("ServiceAccount")[pod(workload)["serviceAccountName"]]
        assert account["automountServiceAccountToken"] is False
        assert pod(workload)["automountServiceAccountToken"] is False


def test_containers_are_probed_and_bounded(variant: Variant) -> None:
    for workload in variant.workloads.values():
        given = container(workload)
        assert given.keys() >= {"startupProbe", "readinessProbe", "livenessProbe"}
        assert given["resources"]["requests"].keys() >= {"cpu", "memory"}
        assert "memory" in given["resources"]["limits"]


def test_probes_ask_the_service_in_its_own_pod(variant: Variant) -> None:
    for workload in variant.ours.values():
        ports = {each["name"]: each["containerPort"] for each in container(workload)["ports"]}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            *_, module, address = container(workload)[probe]["exec"]["command"]
            assert (module, address) == ("services.runtime.probe", f"127.0.0.1:{ports['grpc']}")


def test_images_are_ours_or_of_one_version(variant: Variant) -> None:
    for workload in variant.workloads.values():
        name, _, tag = container(workload)["image"].rpartition(":")
        if name.startswith("hedgerow/"):
            assert (REPOSITORY / f"deploy/docker/{name.removeprefix('hedgerow/')}.Dockerfile").exists()
        assert re.search(r"\d+\.\d+\.\d+", tag), "an exact version"


def test_what_is_mounted_is_there_or_described(variant: Variant) -> None:
    made = {each["spec"]["secretName"] for each in variant.kind("Certificate").values()}
    for workload in variant.workloads.values():
        claims = [each["metadata"]["name"] for each in workload["spec"].get("volumeClaimTemplates", ())]
        volumes = {each["name"]: each for each in pod(workload).get("volumes", ())}
        for mount in container(workload)["volumeMounts"]:
            assert mount["name"] in claims or mount["name"] in volumes
        for volume in volumes.values():
            if "configMap" in volume:
                assert volume["configMap"]["name"] in variant.kind("ConfigMap")
            if "persistentVolumeClaim" in volume:
                assert volume["persistentVolumeClaim"]["claimName"] in variant.kind("PersistentVolumeClaim")
            if "secret" in volume:
                name = volume["secret"]["secretName"]
                described = f"`{name.replace(f'{identity(workload)}-tls', '<identity>-tls')}`" in OPERATIONS
                assert name in made or described, name


def test_secrets_in_the_environment_are_described(variant: Variant) -> None:
    for workload in variant.workloads.values():
        for variable in container(workload).get("env", ()):
            reference = variable.get("valueFrom", {}).get("secretKeyRef")
            assert reference is None or f"`{reference['name']}`" in OPERATIONS


def test_the_topology_names_services_that_there_are(variant: Variant, tmp_path: Path) -> None:
    given, services = the_topology(variant, tmp_path), variant.kind("Service")
    assert given.mtls
    for name, service in given.services.items():
        hosts = [each.address.rpartition(":") for each in service.endpoints]
        (own,) = [(host, port) for host, _, port in hosts if "." not in host]
        assert own == (name, str(services[name]["spec"]["ports"][0]["port"]))
        assert (service.identity or name.partition("-")[0]) == identity(variant.workloads[name])
    assert given.edge
    ports = {each["name"]: each["containerPort"] for each in container(variant.workloads["edge"])["ports"]}
    assert int(given.edge.address.rpartition(":")[2]) == ports["https"]


def test_the_gateway_finds_everything_through_the_control_plane(variant: Variant, tmp_path: Path) -> None:
    given, told = the_topology(variant, tmp_path), environment(variant.ours["gateway"])
    for name in re.findall(r"xds:///([\w-]+)", " ".join(told.values())):
        assert name in given.services
    assert {name for name in given.services if name != "gateway"} == set(
        re.findall(r"xds:///([\w-]+)", " ".join(told.values()))
    )
    found = bootstrap(told)
    (control,) = variant.kind("Service")["control"]["spec"]["ports"]
    assert found.control == f"control.hedgerow:{control['port']}"
    assert found.node.id == "pod-1"
    assert found.node.locality.region in (given.regions or {""})


def test_xds_channels_use_the_certificates_that_are_mounted(variant: Variant) -> None:
    told = json.loads(environment(variant.ours["gateway"])["GRPC_XDS_BOOTSTRAP_CONFIG"])
    assert told["certificate_providers"].keys() == {PROVIDER}
    credentials = told["xds_servers"][0]["channel_creds"][0]
    for given in (credentials["config"], told["certificate_providers"][PROVIDER]["config"]):
        files = {given[key] for key in ("ca_certificate_file", "certificate_file", "private_key_file")}
        assert files == {"/tls/ca.crt", "/tls/tls.crt", "/tls/tls.key"}


def test_the_models_of_router_gateway_and_engines_have_the_same_names(variant: Variant) -> None:
    catalogue = json.loads(environment(variant.ours["router"])["HEDGEROW_ROUTER_MODELS"])
    reachable = json.loads(environment(variant.ours["gateway"])["HEDGEROW_GATEWAY_LLM_ADDRESSES"])
    assert {model["name"] for model in catalogue} == reachable.keys()
    for name, target in reachable.items():
        engine = environment(variant.ours[target.removeprefix("xds:///")])
        assert engine["HEDGEROW_LLM_MODEL_NAME"] == name
    if variant.name != "overlays/gpu":
        assert catalogue == json.loads(demo_settings(public_models())["router"]["MODELS"])


def test_the_network_lets_those_in_who_may_call(variant: Variant) -> None:
    policies = [each["spec"] for each in variant.kind("NetworkPolicy").values()]
    assert {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]} in policies, "nobody by default"
    for workload in variant.ours.values():
        allowed = {
            identity(caller)
            for caller in variant.workloads.values()
            if any(lets_in(policy, labels(caller), labels(workload)) for policy in policies)
        }
        may_call = SERVICES[identity(workload)].callers - {"operator"}  # who comes through `kubectl port-forward`
        assert allowed == may_call | {"control"}  # which asks everybody for health


def lets_in(policy: dict[str, Any], caller: Any, called: Any) -> bool:
    """Whether the policy lets pods of `caller`'s labels connect to the gRPC port of those of `called`'s."""
    if "Ingress" not in policy["policyTypes"] or not selects(policy["podSelector"], called):
        return False
    return any(
        "podSelector" in peer and selects(peer["podSelector"], caller)
        for rule in policy.get("ingress", ())
        if {"port": "grpc"} in rule.get("ports", ())
        for peer in rule.get("from", ())
    )


def test_redis_is_for_those_who_keep_something_there(variant: Variant) -> None:
    policy = variant.kind("NetworkPolicy")["redis"]["spec"]
    told = {identity(each) for each in variant.ours.values() if "redis" in json.dumps(container(each).get("env", ()))}
    (rule,) = policy["ingress"]
    (peer,) = rule["from"]
    assert told == {identity(each) for each in variant.workloads.values() if selects(peer["podSelector"], labels(each))}


def test_redis_wants_a_password_and_tls_and_its_certificate_is_read_again(variant: Variant) -> None:
    redis = container(variant.workloads["redis"])
    told = dict(argument.removeprefix("--").split(maxsplit=1) for argument in redis["args"])
    (port,) = redis["ports"]
    assert (told["port"], told["tls-port"]) == ("0", str(port["containerPort"]))
    assert told["requirepass"] == "$(REDIS_PASSWORD)"
    files = {name: told[name] for name in ("tls-cert-file", "tls-key-file")}
    assert files == {"tls-cert-file": "/tls/tls.crt", "tls-key-file": "/tls/tls.key"}
    (*_, again) = redis["livenessProbe"]["exec"]["command"]
    assert f"config set {' '.join(f'{name} {file}' for name, file in files.items())}" in again
    for probe in ("readinessProbe", "livenessProbe"):
        assert "redis-cli --tls --cacert /tls/ca.crt " in redis[probe]["exec"]["command"][-1]
    assert 'url="rediss://:$password@redis.hedgerow:6379/0?ssl_ca_certs=/tls/ca.crt"' in OPERATIONS


def test_what_the_cache_keeps_in_redis_is_encrypted_with_a_key_that_it_alone_has(variant: Variant) -> None:
    for workload in variant.workloads.values():
        secrets = [
            each["valueFrom"]["secretKeyRef"]
            for each in container(workload).get("env", ())
            if "valueFrom" in each and "secretKeyRef" in each["valueFrom"]
        ]
        assert ({"name": "cache-encryption", "key": "key"} in secrets) is (identity(workload) == "cache")


def test_every_identity_has_a_certificate_that_says_so(complete: Variant) -> None:
    made = {each["spec"]["secretName"]: each["spec"] for each in complete.kind("Certificate").values()}
    for workload in [*complete.ours.values(), complete.workloads["edge"], complete.workloads["redis"]]:
        (volume,) = [each for each in pod(workload)["volumes"] if each["name"] == "tls"]
        given, who = made[volume["secret"]["secretName"]], identity(workload)
        assert given["uris"] == [f"spiffe://hedgerow/{who}"]
        assert f"{who}.hedgerow" in given["dnsNames"]
        assert {"server auth", *(["client auth"] if who != "redis" else [])} <= set(given["usages"])
        assert given["issuerRef"] == {"kind": "Issuer", "name": "mesh"}


def test_autoscalers_have_targets_and_metrics_that_there_are(complete: Variant) -> None:
    scalers = complete.kind("HorizontalPodAutoscaler")
    assert scalers.keys() == complete.kind("Deployment").keys() - {"control"}
    rules = yaml.safe_load(complete.kind("ConfigMap")["prometheus-adapter-rules"]["data"]["config.yaml"])
    known = {name_of(rule) for rule in (*rules["rules"], *rules["externalRules"])}
    models = json.loads(environment(complete.ours["gateway"])["HEDGEROW_GATEWAY_LLM_ADDRESSES"])
    for scaler in scalers.values():
        target = complete.workloads[scaler["spec"]["scaleTargetRef"]["name"]]
        assert "replicas" not in target["spec"], "each `kubectl apply` would undo what the autoscaler did"
        for metric in scaler["spec"]["metrics"]:
            asked = metric.get("pods") or metric.get("external")
            assert asked is None or asked["metric"]["name"] in known
            if metric["type"] == "External":
                limiter = asked["metric"]["selector"]["matchLabels"]["limiter"]
                assert models[limiter] == f"xds:///{target['metadata']['name']}"


def name_of(rule: dict[str, Any]) -> str:
    """What a rule of the Prometheus adapter calls its metric."""
    series = re.match(r"\w+", rule["seriesQuery"])
    assert series
    assert f"`{series[0].removesuffix('_sum')}`" in OPERATIONS
    return str(rule.get("name", {}).get("as", series[0]))


def test_envoys_bootstrap_is_what_the_command_line_writes(variant: Variant, tmp_path: Path) -> None:
    (found,) = [each["data"] for name, each in variant.kind("ConfigMap").items() if name.startswith("envoy-")]
    region = environment(variant.ours["gateway"])["REGION"]
    write_bootstrap(
        tmp_path,
        node_id="edge",
        region=region,
        control_address="control.hedgerow:50060",
        tls_dir=Path("/tls"),
        edge_tls_dir=Path("/edge-tls"),
    )
    assert {path.name: yaml.safe_load(path.read_text()) for path in tmp_path.iterdir()} == {
        name: yaml.safe_load(text) for name, text in found.items()
    }
    mounted = {each["mountPath"] for each in container(variant.workloads["edge"])["volumeMounts"]}
    assert mounted >= {"/etc/envoy", "/tls", "/edge-tls"}


@pytest.mark.skipif(not KUBECTL, reason="no kubectl to render the manifests with")
def test_models_on_gpus_ask_for_one_and_leave_the_old_replica_its_own() -> None:
    for name in ("llm-fast", "llm-quality"):
        workload = rendered("overlays/gpu").ours[name]
        assert container(workload)["resources"]["limits"]["nvidia.com/gpu"] == 1
        assert workload["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 0}
