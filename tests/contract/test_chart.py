"""The Helm chart is valid and fits together: with itself, the images, the settings and the contracts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import kubernetes_validate
import kubernetes_validate.utils
import pytest
import yaml

from services.runtime.process.workers import SLACK_S
from tests.contract.accepting import accepted, exposed
from tests.contract.chart import (
    CHART,
    VALUES,
    VARIANTS,
    container,
    environment,
    identity,
    labels,
    needs_helm,
    pod,
    ports,
    rendered,
    selects,
)

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs/kubernetes.md"
OLDEST = yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"].removeprefix(">=")[:4]
VERSIONS = (OLDEST, ".".join(kubernetes_validate.latest_version().split(".")[:2]))
FOREIGN = ("cert-manager.io/", "keda.sh/", "monitoring.coreos.com/")  # whose schemas are not Kubernetes' own
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
pytestmark = needs_helm
everywhere = pytest.mark.parametrize("variant", VARIANTS)


@pytest.fixture(scope="module", autouse=True)
def _schemas_are_read_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kubernetes_validate.utils, "schema_contents", cache(kubernetes_validate.utils.schema_contents))
        yield


def test_every_values_file_is_tried_and_says_how_it_is_used() -> None:
    files = {path.stem: path.read_text() for path in VALUES.glob("*.yaml")}
    assert files.keys() == {name for variant in VARIANTS.values() for name in variant}
    page = PAGE.read_text()
    for variant, names in VARIANTS.items():
        if names:
            head = re.sub(r"\\\n#", "", files[names[-1]])
            command = "helm install mesh deploy/helm/hedgerow -n hedgerow"
            assert re.search(
                rf"{command}\s+" + r"\s+".join(f"-f deploy/helm/values/{each}.yaml" for each in names), head
            )
            assert f"deploy/helm/values/{variant}.yaml" in page


@everywhere
def test_helm_lints_and_renders_it(variant: str) -> None:
    answer = rendered(variant)
    assert answer.warnings == []
    assert len(answer.manifests) > 20
    names = [(each["kind"], each["metadata"]["name"]) for each in answer.manifests]
    assert len(set(names)) == len(names)


@everywhere
def test_every_manifest_is_valid(variant: str) -> None:
    for manifest in rendered(variant).manifests:
        if not manifest["apiVersion"].startswith(FOREIGN):
            for version in VERSIONS:
                kubernetes_validate.validate(manifest, version, strict=True)


@everywhere
def test_the_environment_is_settings_that_the_service_takes(
    variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = rendered(variant)
    (tmp_path / "topology.yaml").write_text(answer.kind("ConfigMap")["topology"]["data"]["topology.yaml"])
    for workload in answer.ours.values():
        settings = accepted(identity(workload), environment(workload), tmp_path, monkeypatch)
        assert settings.tls_dir == (None if variant == "provider" else Path("/tls"))
        assert 0 < settings.lame_duck_ms < settings.grace_ms
        assert pod(workload)["terminationGracePeriodSeconds"] > settings.grace_ms / 1000 + SLACK_S


@everywhere
def test_a_variable_is_referred_to_below_it(variant: str) -> None:
    for workload in rendered(variant).workloads.values():
        variables = environment(workload)
        texts = [*variables.values(), *container(workload).get("args", ())]
        assert {name for text in texts for name in re.findall(r"\$\((\w+)\)", text)} - variables.keys() == set()
        assert not any(re.search(r"\$\(\w+\)", text) for text in variables.values())


@everywhere
def test_selectors_select_their_own_pods_alone(variant: str) -> None:
    answer = rendered(variant)
    for name, workload in answer.workloads.items():
        chosen = [
            other for other, each in answer.workloads.items() if selects(workload["spec"]["selector"], labels(each))
        ]
        assert chosen == [name]
    for name, each in answer.kind("PodDisruptionBudget").items():
        assert selects(each["spec"]["selector"], labels(answer.workloads[name]))


@everywhere
def test_a_service_leads_to_a_port_that_its_pods_listen_on(variant: str) -> None:
    answer = rendered(variant)
    for name, service in answer.kind("Service").items():
        workload = answer.workloads[name.removesuffix("-http")]
        assert selects({"matchLabels": service["spec"]["selector"]}, labels(workload))
        assert all(each["targetPort"] in ports(workload) for each in service["spec"]["ports"])
        if name in answer.ours:
            found = {each["name"]: each["port"] for each in service["spec"]["ports"]}
            assert found["grpc"] == ports(workload)["grpc"] == exposed(identity(workload))
            assert ("http" in found) is (name == "gateway")
            assert service["spec"]["clusterIP"] == "None", "the control plane looks up pods, not a virtual address"


@everywhere
def test_replicas_survive_a_disruption_and_are_spread_over_zones_and_hosts(variant: str) -> None:
    answer = rendered(variant)
    for name, workload in answer.workloads.items():
        if name == "redis" or (variant, name) == ("provider", "cache"):  # one of each, with a volume
            continue
        scaler = answer.kind("ScaledObject").get(name)
        assert (scaler["spec"]["minReplicaCount"] if scaler else workload["spec"]["replicas"]) >= 2
        assert answer.kind("PodDisruptionBudget")[name]["spec"]["maxUnavailable"] == 1
        spread = pod(workload)["topologySpreadConstraints"]
        assert {each["topologyKey"] for each in spread} == {"topology.kubernetes.io/zone", "kubernetes.io/hostname"}
        assert all(selects(each["labelSelector"], labels(workload)) for each in spread)


@everywhere
def test_pods_are_no_root_write_into_volumes_alone_and_get_no_token_of_the_cluster(variant: str) -> None:
    answer = rendered(variant)
    for workload in answer.workloads.values():
        secure = pod(workload)["securityContext"]
        assert (secure["runAsNonRoot"], secure["runAsUser"]) == (True, 10001)
        assert secure["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container(workload)["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        account = answer.kind("ServiceAccount")[pod(workload)["serviceAccountName"]]
        assert account["automountServiceAccountToken"] is False
        assert pod(workload)["automountServiceAccountToken"] is False


@everywhere
def test_a_probe_starts_no_process_and_has_a_startup_probe_before_it(variant: str) -> None:
    for workload in rendered(variant).ours.values():
        given = container(workload)
        startup, ready, live = (given[name] for name in PROBES)
        if variant == "provider":  # in plain text
            assert ready["grpc"] == {"port": ports(workload)["grpc"]}
        else:
            assert ready["httpGet"] == {"path": "/readyz", "port": "metrics"}
        assert live["httpGet"] == {"path": "/livez", "port": "metrics"}
        waits = identity(workload) == "gateway"  # for a model, which must not end it
        asked = live if waits else ready
        assert {how: startup.get(how) for how in ("grpc", "httpGet")} == {
            how: asked.get(how) for how in ("grpc", "httpGet")
        }
        address = environment(workload)[f"HEDGEROW_{identity(workload).upper()}_METRICS_ADDRESS"]
        assert address == f"0.0.0.0:{ports(workload)['metrics']}"
        assert startup["failureThreshold"] * startup["periodSeconds"] >= 60


@everywhere
def test_containers_are_bounded_and_their_images_have_one_version(variant: str) -> None:
    for workload in rendered(variant).workloads.values():
        given = container(workload)
        assert given["resources"]["requests"].keys() >= {"cpu", "memory"}
        assert "memory" in given["resources"]["limits"]
        assert "cpu" not in given["resources"]["limits"]
        name, _, tag = given["image"].rpartition(":")
        if name.startswith("hedgerow/"):
            assert (REPOSITORY / f"deploy/docker/{name.removeprefix('hedgerow/')}.Dockerfile").exists()
        assert re.search(r"\d+\.\d+\.\d+", tag), "an exact version"


@everywhere
def test_a_mounted_volume_is_made_by_the_chart_or_described(variant: str) -> None:
    answer, page = rendered(variant), PAGE.read_text()
    made = {each["spec"]["secretName"] for each in answer.kind("Certificate").values()} | answer.kind("Secret").keys()
    for workload in answer.workloads.values():
        claims = [each["metadata"]["name"] for each in workload["spec"].get("volumeClaimTemplates", ())]
        volumes = {each["name"]: each for each in pod(workload).get("volumes", ())}
        assert {each["name"] for each in container(workload)["volumeMounts"]} == {*claims, *volumes}
        for volume in volumes.values():
            if "configMap" in volume:
                assert volume["configMap"]["name"] in answer.kind("ConfigMap")
            if "persistentVolumeClaim" in volume:
                assert volume["persistentVolumeClaim"]["claimName"] in answer.kind("PersistentVolumeClaim")
            if "secret" in volume:
                name = volume["secret"]["secretName"]
                described = name if name not in (f"{identity(workload)}-tls",) else "<identity>-tls"
                assert name in made or f"`{described}`" in page, name


@everywhere
def test_secrets_in_the_environment_are_described(variant: str) -> None:
    for workload in rendered(variant).workloads.values():
        for variable in container(workload).get("env", ()):
            reference = variable.get("valueFrom", {}).get("secretKeyRef")
            assert reference is None or f"`{reference['name']}`" in PAGE.read_text()
