"""What stands around the services in the Helm chart: Redis, certificates, autoscalers, Prometheus, GPUs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from services.gateway.upstream.fleet import LIMITER
from tests.contract.chart import (
    CHART,
    NAMESPACE,
    VARIANTS,
    ask,
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
pytestmark = needs_helm
everywhere = pytest.mark.parametrize("variant", VARIANTS)


def test_redis_fills_three_quarters_of_its_container() -> None:
    memory = {"512Mi": 384 * 2**20, "2Gi": 1536 * 2**20, "1.5G": 1_125_000_000, 1_000_000_000: 750_000_000}
    given = [{"redis": {"resources": {"limits": {"memory": each}}}} for each in memory]
    given.append({"redis": {"resources": {"limits": {"memory": None}, "requests": {"memory": "1Gi"}}}})
    options = [container(answer.workloads["redis"])["args"] for answer in ask(given)]
    for most, args in zip([*memory.values(), 768 * 2**20], options, strict=True):
        assert f"--maxmemory {most}" in args
    (wrong,) = ask([{"redis": {"resources": {"limits": {"memory": "512m"}}}}])
    assert "redis.resources: memory 512m: a number of bytes" in wrong.error


def test_the_edge_takes_connections_for_as_long_as_load_balancers_need_to_notice() -> None:
    (answer,) = ask([{"shutdown": {"graceSeconds": 60, "lameDuckSeconds": 40}}])
    edge = answer.workloads["edge"]
    assert {"name": "LAME_DUCK_S", "value": "40"} in container(edge)["env"]
    waits = re.findall(r"sleep (\S+)|\{1\.\.(\d+)\}", (CHART / "files/envoy/drain.sh").read_text())
    assert waits == [('"${LAME_DUCK_S:-5}"', ""), ("", "55"), ("1", "")]
    assert pod(edge)["terminationGracePeriodSeconds"] > 40 + 55


@everywhere
def test_redis_wants_a_password_and_tls_and_its_certificate_is_read_again(variant: str) -> None:
    answer = rendered(variant)
    if "redis" not in answer.workloads:
        assert variant in ("provider", "given-secrets")
        return
    redis = container(answer.workloads["redis"])
    options = dict(argument.removeprefix("--").split(maxsplit=1) for argument in redis["args"])
    (port,) = redis["ports"]
    assert (options["port"], options["tls-port"]) == ("0", str(port["containerPort"]))
    assert options["requirepass"] == "$(REDIS_PASSWORD)"
    files = {name: options[name] for name in ("tls-cert-file", "tls-key-file")}
    assert files == {"tls-cert-file": "/tls/tls.crt", "tls-key-file": "/tls/tls.key"}
    (*_, again) = redis["livenessProbe"]["exec"]["command"]
    assert f"config set {' '.join(f'{name} {file}' for name, file in files.items())}" in again
    for probe in ("readinessProbe", "livenessProbe"):
        assert "redis-cli --tls --cacert /tls/ca.crt " in redis[probe]["exec"]["command"][-1]
    assert 'url="rediss://:$password@redis.hedgerow:6379/0?ssl_ca_certs=/tls/ca.crt"' in PAGE.read_text()


@everywhere
def test_the_key_that_encrypts_goes_to_the_cache_alone(variant: str) -> None:
    for workload in rendered(variant).workloads.values():
        names = [each["name"] for each in container(workload).get("env", ())]
        encrypted = identity(workload) == "cache" and variant != "provider"
        assert ("HEDGEROW_CACHE_ENCRYPTION_KEY" in names) is encrypted


@everywhere
def test_every_identity_has_a_certificate_with_its_name(variant: str) -> None:
    answer = rendered(variant)
    if variant in ("provider", "given-secrets"):
        assert not answer.kind("Certificate", "Issuer")
        return
    made = {each["spec"]["secretName"]: each["spec"] for each in answer.kind("Certificate").values()}
    issuers = answer.kind("Issuer")
    for workload in answer.workloads.values():
        (volume,) = [each for each in pod(workload)["volumes"] if each["name"] == "tls"]
        given, name = made[volume["secret"]["secretName"]], identity(workload)
        assert given["uris"] == [f"spiffe://hedgerow/{name}"]
        assert {f"{name}.hedgerow", f"{name}.{NAMESPACE}"} <= set(given["dnsNames"])
        assert {"server auth", *(["client auth"] if name != "redis" else [])} <= set(given["usages"])
        assert given["issuerRef"]["name"] in issuers or given["issuerRef"]["kind"] == "ClusterIssuer"
    for authority in [each for each in made.values() if each.get("isCA")]:
        assert authority["privateKey"]["rotationPolicy"] == "Never", "certificates of before must stay trusted"


@everywhere
def test_autoscalers_have_targets_and_metrics_that_there_are(variant: str) -> None:
    answer = rendered(variant)
    scalers = answer.kind("ScaledObject")
    if variant not in ("gpu", "two-regions"):
        assert not scalers
        return
    assert scalers.keys() == answer.kind("Deployment").keys() - {"control"}
    models = json.loads(environment(answer.ours["gateway"])["HEDGEROW_GATEWAY_LLM_ADDRESSES"])
    metrics = (REPOSITORY / "docs/metrics.md").read_text()
    for name, scaler in scalers.items():
        target = answer.workloads[scaler["spec"]["scaleTargetRef"]["name"]]
        assert "replicas" not in target["spec"], "each `helm upgrade` would undo what the autoscaler did"
        queries = [each["metadata"]["query"] for each in scaler["spec"]["triggers"] if each["type"] == "prometheus"]
        for query in queries:
            (series,) = re.findall(r"hedgerow_\w+(?=\{)", query)
            assert re.search(rf"`{series.removesuffix('_sum')}[`{{]", metrics)
            assert f'namespace="{NAMESPACE}"' in query
        if name.startswith("llm-"):
            limiters = {limiter for query in queries for limiter in re.findall(r'limiter="(.+?)"', query)}
            (model,) = [model for model, address in models.items() if address == f"xds:///{name}"]
            assert limiters == {LIMITER.format(model)}
            assert len(queries) == 2


@everywhere
def test_prometheus_finds_the_pods_that_have_metrics(variant: str) -> None:
    answer = rendered(variant)
    for monitor in answer.kind("PodMonitor").values():
        selected = {
            name for name, each in answer.workloads.items() if selects(monitor["spec"]["selector"], labels(each))
        }
        assert selected == answer.ours.keys()
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        assert all(endpoint["port"] in ports(answer.workloads[name]) for name in selected)
    assert bool(answer.kind("PodMonitor")) is (variant in ("gpu", "two-regions"))


def test_models_on_gpus_ask_for_one_and_leave_the_old_replica_its_own() -> None:
    for name in ("llm-fast", "llm-quality"):
        workload = rendered("gpu").ours[name]
        assert container(workload)["resources"]["limits"]["nvidia.com/gpu"] == 1
        assert container(workload)["image"].startswith("hedgerow/llm-cuda:")
        assert workload["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 0}
