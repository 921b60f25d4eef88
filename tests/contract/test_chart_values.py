"""The chart refuses values that it does not know, and says which."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import kubernetes_validate
import yaml
from jsonschema import Draft7Validator

from tests.contract.chart import CHART, VARIANTS, ask, container, environment, needs_helm, over, pod, values_of

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())
NEWEST = ".".join(kubernetes_validate.latest_version().split(".")[:2])
MODEL = {"name": "m", "service": "m", "source": "provider"}
# (values, what is said of them)
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a name that is none": ({"gatway": {}}, "additional properties 'gatway' not allowed"),
    "a name inside": ({"cache": {"replica": 3}}, "at '/cache': additional properties 'replica' not allowed"),
    "a mode": ({"tls": {"mode": "off"}}, "at '/tls/mode': value must be one of 'certManager', 'secrets', 'none'"),
    "no replica": ({"router": {"replicas": 0}}, "at '/router/replicas': minimum: got 0, want 1"),
    "a text for a number": ({"gateway": {"replicas": "two"}}, "at '/gateway/replicas': got string, want integer"),
    "no model": ({"models": []}, "at '/models': minItems: got 0, want 1"),
    "a model without a source": ({"models": [{"name": "m", "service": "m"}]}, "missing property 'source'"),
    "a name no host can have": ({"models": [{**MODEL, "service": "A_B"}]}, "'A_B' does not match pattern"),
    "a setting of the chart's": (
        {"cache": {"settings": {"TLS_DIR": "/x"}}},
        "cache.settings: TLS_DIR is decided by tls",
    ),
    "workers": ({"gateway": {"settings": {"WORKERS": 4}}}, "gateway.settings: WORKERS is decided by gateway.replicas"),
    "a setting in small letters": ({"cache": {"settings": {"log_level": "INFO"}}}, "at '/cache/settings': additional"),
    "a password in an address": ({"redis": {"url": "redis://:pw@redis:6379"}}, "at '/redis/url'"),
    "a key in clear text": ({"tenants": {"inline": {"acme": {"keys": ["sk-abc"]}}}}, "'sk-abc' does not match pattern"),
    "half an issuer": ({"tls": {"issuer": {"kind": "Issuer"}}}, "properties 'name' required, if 'kind' exists"),
    "one service twice": ({"models": [MODEL, {**MODEL, "name": "n"}]}, "models: each service once, got m twice"),
    "a region that is none": (
        over(values_of("two-regions"), {"region": "north"}),
        'region: one of east, west, got "north"',
    ),
    "a region without a network": (
        {"region": "a", "regions": {name: {"latitude": 1, "longitude": 1} for name in "ab"}},
        "regions.b: domain and cidrs are required for another region",
    ),
    "a volume for two": (
        {"cache": {"persistence": {"enabled": True}}},
        "cache.persistence.enabled: one replica owns the volume: set cache.replicas to 1, or keep answers in Redis",
    ),
}


def test_the_schema_is_one_and_takes_the_defaults_and_every_values_file() -> None:
    Draft7Validator.check_schema(SCHEMA)
    for variant in VARIANTS:
        Draft7Validator(SCHEMA).validate(over(DEFAULTS, values_of(variant)))


def test_the_schema_knows_every_default_and_refuses_every_other_name() -> None:
    def closed(schema: dict[str, Any], at: str) -> Iterator[str]:
        if "properties" in schema and schema.get("additionalProperties") is not False:
            yield at
        for name, inner in schema.get("properties", {}).items():
            yield from closed(inner, f"{at}.{name}")

    places = {"": SCHEMA, **SCHEMA["definitions"]}
    free = {each for name, schema in places.items() for each in closed(schema, name)}
    assert free <= {".tenants.inline"}
    assert DEFAULTS.keys() <= SCHEMA["properties"].keys()


@needs_helm
def test_a_wrong_value_is_refused_with_a_message_that_names_it() -> None:
    for (name, (_, said)), answer in zip(WRONG.items(), ask(each for each, _ in WRONG.values()), strict=True):
        assert said in answer.error, f"{name}: {answer.error or 'taken'}"
        assert not answer.manifests


@needs_helm
def test_settings_are_written_as_the_services_read_them() -> None:
    settings = {"MAX_ENTRIES": 10_000_000, "EXACT_ONLY": False, "NAME": 'a $(B) "c"', "SHARE": 0.25, "SOME": {"a": [1]}}
    secret = {"name": "keys", "key": "it"}
    (answer,) = ask([{"cache": {"settings": {**settings, "LOG_LEVEL": "DEBUG"}, "secrets": {"OTHER": secret}}}])
    assert not answer.error
    cache = answer.workloads["cache"]
    variables = {name.removeprefix("HEDGEROW_CACHE_"): value for name, value in environment(cache).items()}
    assert (variables["MAX_ENTRIES"], variables["EXACT_ONLY"], variables["SHARE"]) == ("10000000", "false", "0.25")
    assert variables["NAME"] == 'a $$(B) "c"', "Kubernetes expands no variable in it"
    assert (variables["SOME"], variables["LOG_LEVEL"]) == ('{"a":[1]}', "DEBUG")
    (other,) = [each for each in container(cache)["env"] if each["name"] == "HEDGEROW_CACHE_OTHER"]
    assert other["valueFrom"] == {"secretKeyRef": secret}


@needs_helm
def test_another_namespace_has_names_of_its_own() -> None:
    (answer,) = ask([{}], namespace="inference")
    names = answer.kind("Certificate")["control"]["spec"]["dnsNames"]
    assert names == ["control.hedgerow", "control.inference", "localhost"]
    assert "control.inference:50060" in environment(answer.workloads["gateway"])["GRPC_XDS_BOOTSTRAP_CONFIG"]


@needs_helm
def test_tokens_of_an_issuer_are_checked_with_keys_that_the_control_plane_mounts() -> None:
    jwt = {"issuer": "https://issuer.example", "audiences": ["mesh"], "jwks_file": "/etc/jwks/jwks.json"}
    (answer,) = ask([{"control": {"jwksConfigMap": "jwks", "topology": {"edge": {"jwt": jwt}}}}])
    mounts = {each["mountPath"] for each in container(answer.workloads["control"])["volumeMounts"]}
    assert "/etc/jwks" in mounts
    topology = yaml.safe_load(answer.kind("ConfigMap")["topology"]["data"]["topology.yaml"])
    assert topology["edge"] == {"address": "0.0.0.0:8443", "tls": True, "jwt": jwt}


@needs_helm
def test_deployments_that_serve_one_model_are_one_service() -> None:
    (answer,) = ask([{"models": [MODEL, {**MODEL, "service": "second"}]}])
    topology = yaml.safe_load(answer.kind("ConfigMap")["topology"]["data"]["topology.yaml"])
    addresses = [each["address"] for each in topology["services"]["llm-m"]["endpoints"]]
    assert addresses == ["llm-m:50053", "llm-second:50053"]
    variables = environment(answer.workloads["gateway"])
    assert json.loads(variables["HEDGEROW_GATEWAY_LLM_ADDRESSES"]) == {"m": "xds:///llm-m"}
    assert len(json.loads(environment(answer.workloads["router"])["HEDGEROW_ROUTER_MODELS"])) == 1


@needs_helm
def test_plain_text_has_an_edge_without_certificates_too() -> None:
    (answer,) = ask([{"tls": {"mode": "none"}, "edge": {"tls": {"enabled": False}}}])
    assert not answer.error
    assert not answer.kind("Certificate", "Issuer")
    volumes = [each["name"] for each in answer.workloads["edge"]["spec"]["template"]["spec"]["volumes"]]
    assert volumes == ["bootstrap", "tmp"]
    assert "transport_socket" not in yaml.safe_dump(answer.kind("ConfigMap")["envoy"]["data"]["envoy.yaml"])
    redis = container(answer.workloads["redis"])
    assert "--port 6379" in redis["args"]
    assert not any("tls" in each for each in redis["args"])


@needs_helm
def test_pods_are_placed_as_the_operator_says_and_a_service_otherwise() -> None:
    spot = {"key": "spot", "operator": "Exists"}
    pods = {"annotations": {"team": "ml"}, "nodeSelector": {"pool": "cpu"}, "priorityClassName": "high"}
    model = {**MODEL, "gpus": 1, "pod": {"nodeSelector": {"pool": "gpu"}, "tolerations": [spot]}}
    (answer,) = ask([{"pods": pods, "models": [model]}])
    for name, workload in answer.workloads.items():
        spec = pod(workload)
        assert workload["spec"]["template"]["metadata"]["annotations"]["team"] == "ml"
        assert spec["priorityClassName"] == "high"
        assert spec["nodeSelector"] == {"pool": "gpu" if name == "llm-m" else "cpu"}
    gpu = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    assert pod(answer.workloads["llm-m"])["tolerations"] == [spot, gpu]
    assert "tolerations" not in pod(answer.workloads["redis"])
    for manifest in answer.workloads.values():
        kubernetes_validate.validate(manifest, NEWEST, strict=True)
