"""The meaning of a mesh file: which processes run, and the settings that each gets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.meshfile import compose, helm
from launcher.meshfile.parts import tenants_of
from launcher.meshfile.processes import TENANTS_FILE, ports_of, processes, write_tenants
from services.gateway.settings.tenants import TenantSettings
from tests.unit.launcher.meshfile.mesh_files import CACHE_KEY, ENVIRONMENT, FULL, file_of, specs_of


def test_every_service_is_a_process_and_every_replica_and_the_gateway_is_last(folder: Path) -> None:
    specs = specs_of(FULL, folder)
    assert list(specs) == [
        "cache", "router", "llm-remote", "llm-local-1", "llm-local-2", "vision", "audio", "gateway",
    ]  # fmt: skip
    assert specs["gateway"].address == "127.0.0.1:6000"
    ports = [int(spec.address.rpartition(":")[2]) for spec in specs.values()]
    assert sorted(ports) == list(range(6000, 6008))


@pytest.mark.parametrize(
    ("cache", "database"),
    [
        ("redis_url_env: REDIS", ""),
        ("redis_url: 'redis://h:6379/0'", ""),
        ("redis_url_env: REDIS, database: mine.db", "mine.db"),
        ("exact: true", "cache.db"),
    ],
)
def test_a_database_beside_redis_is_set_only_where_the_file_has_one(folder: Path, cache: str, database: str) -> None:
    text = FULL.replace("redis_url_env: REDIS", cache)
    assert Path(specs_of(text, folder)["cache"].environment["HEDGEROW_CACHE_DATABASE"]).name == database


@pytest.mark.parametrize(
    ("said", "loads"),
    [
        ("", "first_use"),
        ("cache: {exact: true}", "first_use"),
        ("profile: latency\ncache: {exact: true}", "first_use"),
        ("cache: {semantic: true}", None),
        ("profile: latency", None),
        ("gateway: {settings: {hits: {sampled: any}}}", None),
        ("tenants: {acme: {key_env: CALLER_KEY, hits: {others: any}}}", None),
        ("cache: {settings: {load_embedder: start}}", "start"),
    ],
)
def test_a_cache_without_semantic_matches_loads_its_embedder_on_demand(
    said: str, loads: str | None, folder: Path
) -> None:
    cache = specs_of(f"models:\n  m: {{url: 'http://a/v1'}}\n{said}\n", folder)["cache"]
    assert cache.environment.get("HEDGEROW_CACHE_LOAD_EMBEDDER") == loads


def test_the_cache_alone_gets_the_encryption_key_and_no_rendered_mesh_has_it(folder: Path) -> None:
    text = FULL.replace("redis_url_env: REDIS", "redis_url_env: REDIS, encryption_key_env: CACHE_KEY")
    environments = {name: spec.environment for name, spec in specs_of(text, folder).items()}
    assert environments["cache"]["HEDGEROW_CACHE_ENCRYPTION_KEY"] == CACHE_KEY
    assert [name for name, each in environments.items() if CACHE_KEY in each.values()] == ["cache"]
    services = yaml.safe_load(compose.render(file_of(text, folder), ENVIRONMENT))["services"]
    assert services["cache"]["environment"]["HEDGEROW_CACHE_ENCRYPTION_KEY"] == "${CACHE_KEY:?}"
    for render in (compose.render, helm.render):
        assert CACHE_KEY not in render(file_of(text, folder), ENVIRONMENT)


def test_the_gateway_finds_every_service_and_asks_no_absent_one(folder: Path) -> None:
    specs = specs_of(FULL, folder)
    environment = specs["gateway"].environment
    assert json.loads(environment["HEDGEROW_GATEWAY_LLM_ADDRESSES"]) == {
        "remote": [specs["llm-remote"].address],
        "local": [specs["llm-local-1"].address, specs["llm-local-2"].address],
    }
    for name in ("cache", "router", "vision", "audio"):
        assert environment[f"HEDGEROW_GATEWAY_{name.upper()}_ADDRESS"] == specs[name].address
    assert (environment["HEDGEROW_GATEWAY_WORKERS"], environment["HEDGEROW_GATEWAY_DEFAULT_BUDGET_MS"]) == ("2", "9000")
    assert json.loads(environment["HEDGEROW_GATEWAY_HEDGE"]) == {"mode": "fixed"}
    alone = specs_of("models: {a: x/y}\ncache: off\n", folder)
    assert list(alone) == ["router", "llm-a", "gateway"]
    for name in ("CACHE", "VISION", "AUDIO"):
        assert alone["gateway"].environment[f"HEDGEROW_GATEWAY_{name}_ADDRESS"] == ""


def tools_of(environment: Mapping[str, str]) -> dict[str, Any]:
    return json.loads(environment["HEDGEROW_GATEWAY_TOOLS"])


def test_the_gateway_knows_the_caches_collections_as_a_source_of_tools(folder: Path) -> None:
    specs = specs_of(FULL, folder)
    found = tools_of(specs["gateway"].environment)["sources"]["collections"]
    assert (found["address"], found["identity"]) == (specs["cache"].address, "cache")
    file = file_of(FULL, folder)
    for container, where in (
        (compose.compose_containers(file)[-1], "cache:50051"),
        (helm.planned(file)[-1], "xds:///cache"),
    ):
        assert tools_of(container.environment)["sources"]["collections"]["address"] == where
    alone = specs_of("models: {a: x/y}\ncache: off\n", folder)["gateway"].environment
    assert "HEDGEROW_GATEWAY_TOOLS" not in alone


def test_the_files_own_tools_stay_beside_the_collections_and_come_first(folder: Path) -> None:
    def tools_with(tools: str) -> Any:
        text = f"models: {{a: x/y}}\ngateway: {{settings: {{tools: {tools}}}}}\n"
        return tools_of(specs_of(text, folder)["gateway"].environment)

    both = tools_with("{max_steps: 3, sources: {files: {url: 'http://127.0.0.1:1/mcp'}}}")
    assert (both["max_steps"], list(both["sources"])) == (3, ["files", "collections"])
    own = tools_with("{sources: {collections: {address: 'x:1'}}}")
    assert own["sources"] == {"collections": {"address": "x:1"}}
    assert tools_with("[]") == [], "invalid values are passed on, for the gateway to refuse"
    assert tools_with("{sources: 3}") == {"sources": 3}


def test_shared_state_and_trace_endpoints_are_configured_where_they_are_needed(folder: Path) -> None:
    for name, spec in specs_of(FULL, folder).items():
        prefix = f"HEDGEROW_{spec.module.removeprefix('services.').upper()}_"
        assert spec.environment[f"{prefix}OTLP_ENDPOINT"] == "http://127.0.0.1:4317"
        shared = spec.environment.get(f"{prefix}REDIS_URL")
        assert shared == (ENVIRONMENT["REDIS"] if name in ("cache", "router", "gateway") else None)
        assert all(variable.startswith(prefix) for variable in spec.environment)


def test_callers_keys_reach_the_gateway_as_digests_in_a_file_of_its_own(folder: Path) -> None:
    file = file_of(FULL, folder)
    digest = sha256(b"a-callers-key").hexdigest()
    assert tenants_of(file, ENVIRONMENT) == {"acme": {"keys": [digest], "requests_per_s": 5}}
    write_tenants(file, folder, ENVIRONMENT)
    written = folder / TENANTS_FILE
    assert yaml.safe_load(written.read_text())["acme"]["keys"] == [digest]
    assert written.stat().st_mode & 0o077 == 0
    environment = specs_of(FULL, folder)["gateway"].environment
    assert environment["HEDGEROW_GATEWAY_TENANTS_FILE"] == str(folder / "state" / TENANTS_FILE)


def test_a_process_keeps_its_port_when_others_come_and_go(folder: Path) -> None:
    file = file_of("models: {a: x/y, b: x/z}\n", folder)
    ports = ports_of(file)
    before = {each.spec.name: each.spec for each in processes(file, ports, folder, ENVIRONMENT)}
    other = file_of("models: {c: x/c, b: x/z}\n", folder)
    after = {each.spec.name: each.spec for each in processes(other, ports, folder, ENVIRONMENT)}
    assert after["llm-b"] == before["llm-b"]
    assert after["llm-c"].address not in {spec.address for spec in before.values()}


def test_a_gateway_at_the_last_port_leaves_none_for_the_others(folder: Path) -> None:
    with pytest.raises(ValueError, match="no port from 65536 on is left for cache"):
        specs_of("models: {a: x/y}\ngateway: 65535\n", folder)


@pytest.mark.parametrize(
    ("gateway", "environment", "expected"),
    [
        ("{address: 6000}", {}, "127.0.0.1:6004"),  # after the cache, the router and the model
        ("{address: 6000, http: 6005, workers: 2}", {}, "127.0.0.1:6006"),  # which has the two ports after it, too
        ("{address: 6000, settings: {metrics_address: ''}}", {}, ""),
        ("{address: 6000}", {"HEDGEROW_GATEWAY_METRICS_ADDRESS": "127.0.0.1:9"}, None),
    ],
)
def test_the_gateway_shows_its_metrics_on_loopback_unless_it_is_said_otherwise(
    gateway: str, environment: dict[str, str], expected: str | None, folder: Path
) -> None:
    file = file_of(f"models: {{a: 'http://h:1/v1'}}\ngateway: {gateway}\n", folder)
    *_, last = processes(file, ports_of(file), folder, environment)
    assert last.spec.environment.get("HEDGEROW_GATEWAY_METRICS_ADDRESS") == expected


@pytest.mark.parametrize(
    ("said", "hits"),
    [
        ("", {}),
        ("cache: {scope: user}", {"scope": "user"}),
        ("cache: {scope: user, exact: true}", {"scope": "user", "others": "exact"}),
        ("cache: {semantic: true}", {"others": "any"}),
        ("cache: {exact: false}", {"others": "off"}),
        (
            "cache: {scope: user, exact: true}\ngateway: {settings: {hits: {revalidate_ms: 40, others: any}}}",
            {"scope": "user", "others": "any", "revalidate_ms": 40},
        ),
        ("gateway: {settings: {hits: {revalidate_ms: 40}}}", {"revalidate_ms": 40}),
    ],
)
def test_a_gateway_is_configured_with_the_requests_that_get_stored_answers(
    said: str, hits: dict[str, Any], folder: Path
) -> None:
    environment = specs_of(f"models: {{local: ./model}}\n{said}", folder)["gateway"].environment
    assert json.loads(environment.get("HEDGEROW_GATEWAY_HITS", "{}")) == hits


def test_a_tenants_own_parts_of_a_profile_reach_the_gateways_file(folder: Path) -> None:
    own = "prompt: {diet: system, conversation: cut}, max_tokens: 300, default_budget_ms: 9000, check_forms: true"
    file = file_of(f"models: {{local: ./model}}\ntenants: {{acme: {{key_env: CALLER_KEY, {own}}}}}", folder)
    tenant = tenants_of(file, ENVIRONMENT)["acme"]
    assert {name: tenant[name] for name in tenant if name != "keys"} == yaml.safe_load(f"{{{own}}}")
    assert TenantSettings.model_validate(tenant).prompt.conversation == "cut"


def test_keys_that_expire_reach_the_gateways_file_with_the_time(folder: Path) -> None:
    first, second = "a" * 64, "f" * 64
    keys = f"[{first}, {{sha256: {second}, expires: 2027-01-31 18:00:00 +02:00}}]"
    file = file_of(f"models: {{local: ./model}}\ntenants: {{acme: {{key_sha256: {keys}}}}}", folder)
    tenant = tenants_of(file, ENVIRONMENT)["acme"]
    assert tenant == {"keys": [first, {"sha256": second, "expires": "2027-01-31T16:00:00Z"}]}
    assert [key.expires and key.expires.isoformat() for key in TenantSettings.model_validate(tenant).keys] == [
        None,
        "2027-01-31T16:00:00+00:00",
    ]
