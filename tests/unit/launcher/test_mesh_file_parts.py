"""The meaning of a mesh file: which processes run, with which settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.meshfile import compose, helm
from launcher.meshfile.containers import VERSION, elsewhere
from launcher.meshfile.fields import Surroundings
from launcher.meshfile.parts import tenants_of
from launcher.meshfile.processes import TENANTS_FILE, ports_of, processes, write_tenants
from launcher.meshfile.reading import parse
from launcher.meshfile.schema import MeshFile
from launcher.processes import ServiceSpec
from services.gateway.settings.tenants import TenantSettings
from services.router.config import RouterSettings

KEY = "sk-proj-Ab12Cd34Ef56"
CACHE_KEY = "Ab12" * 10 + "Ab0="
ENVIRONMENT = {
    "PROVIDER_KEY": f"{KEY}\n",
    "CALLER_KEY": "a-callers-key",
    "REDIS": "redis://:pw@127.0.0.1:6379/0",
    "CACHE_KEY": CACHE_KEY,
}
FULL = """\
models:
  remote:
    url: https://api.example/v1
    model: big-one
    key_env: PROVIDER_KEY
    tier: quality
    prices: {input: 0.5, output: 1.5}
    context_tokens: 128000
    max_tokens: 1000
    expected_ttft_ms: 300
    options: {http_version: "2"}
  local:
    folder: ./model
    replicas: 2
    options: {enforce_eager: true}
    settings: {grace_ms: 9}
tenants:
  acme: {key_env: [CALLER_KEY], requests_per_s: 5}
gateway: {address: "127.0.0.1:6000", workers: 2, settings: {hedge: {mode: fixed}, default_budget_ms: 9000}}
cache: {redis_url_env: REDIS}
vision: {models: ., default: shapes}
audio: ./model
tracing: http://127.0.0.1:4317
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"max_position_embeddings": 4096}')
    return tmp_path


def file_of(text: str, folder: Path) -> MeshFile:
    return parse(text, "mesh.yaml", Surroundings(folder, ENVIRONMENT)).whole()


def specs_of(text: str, folder: Path) -> dict[str, ServiceSpec]:
    file = file_of(text, folder)
    found = processes(file, ports_of(file), folder / "state", ENVIRONMENT)
    return {process.spec.name: process.spec for process in found}


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


def test_a_provider_is_told_its_url_its_model_and_its_key(folder: Path) -> None:
    told = specs_of(FULL, folder)["llm-remote"].environment
    assert (told["HEDGEROW_LLM_MODEL_NAME"], told["HEDGEROW_LLM_ENGINE"]) == ("remote", "openai")
    assert json.loads(told["HEDGEROW_LLM_OPENAI"]) == {
        "base_url": "https://api.example/v1", "model": "big-one", "context_tokens": 128000, "http_version": "2",
    }  # fmt: skip
    assert told["HEDGEROW_LLM_OPENAI__API_KEY"] == KEY
    assert told["HEDGEROW_LLM_MAX_TOKENS_CAP"] == told["HEDGEROW_LLM_DEFAULT_MAX_TOKENS"] == "1000"


def test_a_model_that_embeds_is_told_so_with_the_gateway_and_the_router_has_its_price(folder: Path) -> None:
    text = """
        models:
          embed: {url: "http://a.example/v1", model: bge, serves: [embeddings, rerank], prices: {input: 0.02}}
          gpt: {url: "http://a.example/v1"}
    """
    specs = specs_of(text, folder)
    assert json.loads(specs["llm-embed"].environment["HEDGEROW_LLM_OPENAI"])["apis"] == ["embeddings", "rerank"]
    assert "apis" not in json.loads(specs["llm-gpt"].environment["HEDGEROW_LLM_OPENAI"])
    gateway = specs["gateway"].environment
    assert json.loads(gateway["HEDGEROW_GATEWAY_SERVES"]) == {"embed": ["embeddings", "rerank"]}
    assert json.loads(gateway["HEDGEROW_GATEWAY_LLM_ADDRESSES"]).keys() == {"embed", "gpt"}
    rows = json.loads(specs["router"].environment["HEDGEROW_ROUTER_MODELS"])
    assert rows[0]["prompt_usd_per_mtok"] == 0.02


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
def test_a_cache_that_compares_nothing_by_itself_loads_its_embedder_when_it_is_needed(
    said: str, loads: str | None, folder: Path
) -> None:
    cache = specs_of(f"models:\n  m: {{url: 'http://a/v1'}}\n{said}\n", folder)["cache"]
    assert cache.environment.get("HEDGEROW_CACHE_LOAD_EMBEDDER") == loads


def test_several_urls_of_a_model_are_its_replicas(folder: Path) -> None:
    specs = specs_of("models:\n  m: {url: ['http://a/v1', 'http://b/v1'], replicas: 2}\n", folder)
    names = ["llm-m-1-1", "llm-m-1-2", "llm-m-2-1", "llm-m-2-2"]
    told = {name: json.loads(specs[name].environment["HEDGEROW_LLM_OPENAI"])["base_url"] for name in names}
    assert list(told.values()) == ["http://a/v1", "http://a/v1", "http://b/v1", "http://b/v1"]
    addresses = json.loads(specs["gateway"].environment["HEDGEROW_GATEWAY_LLM_ADDRESSES"])
    assert addresses == {"m": [specs[name].address for name in names]}


def test_a_folder_is_told_to_vllm_with_its_options(folder: Path) -> None:
    told = specs_of(FULL, folder)["llm-local-2"].environment
    assert (told["HEDGEROW_LLM_ENGINE"], told["HEDGEROW_LLM_VLLM__MODEL"]) == ("vllm", str(folder / "model"))
    assert json.loads(told["HEDGEROW_LLM_VLLM"]) == {"enforce_eager": True}
    assert told["HEDGEROW_LLM_GRACE_MS"] == "9"


def test_an_engine_of_ones_own_is_given_the_settings_of_the_one_it_stands_for(folder: Path) -> None:
    text = "models:\n  a: {url: 'http://a/v1', engine: 'mine.engine:start', options: {http_version: '2'}}\n"
    told = specs_of(text, folder)["llm-a"].environment
    assert told["HEDGEROW_LLM_ENGINE"] == "mine.engine:start"
    assert json.loads(told["HEDGEROW_LLM_OPENAI"]) == {"base_url": "http://a/v1", "model": "a", "http_version": "2"}


def test_the_cache_alone_is_told_the_key_that_encrypts_and_no_rendered_mesh_has_it(folder: Path) -> None:
    text = FULL.replace("redis_url_env: REDIS", "redis_url_env: REDIS, encryption_key_env: CACHE_KEY")
    told = {name: spec.environment for name, spec in specs_of(text, folder).items()}
    assert told["cache"]["HEDGEROW_CACHE_ENCRYPTION_KEY"] == CACHE_KEY
    assert [name for name, each in told.items() if CACHE_KEY in each.values()] == ["cache"]
    services = yaml.safe_load(compose.render(file_of(text, folder), ENVIRONMENT))["services"]
    assert services["cache"]["environment"]["HEDGEROW_CACHE_ENCRYPTION_KEY"] == "${CACHE_KEY:?}"
    for render in (compose.render, helm.render):
        assert CACHE_KEY not in render(file_of(text, folder), ENVIRONMENT)


def test_the_gateway_finds_everybody_and_what_is_not_there_is_not_asked(folder: Path) -> None:
    specs = specs_of(FULL, folder)
    told = specs["gateway"].environment
    assert json.loads(told["HEDGEROW_GATEWAY_LLM_ADDRESSES"]) == {
        "remote": [specs["llm-remote"].address],
        "local": [specs["llm-local-1"].address, specs["llm-local-2"].address],
    }
    for name in ("cache", "router", "vision", "audio"):
        assert told[f"HEDGEROW_GATEWAY_{name.upper()}_ADDRESS"] == specs[name].address
    assert (told["HEDGEROW_GATEWAY_WORKERS"], told["HEDGEROW_GATEWAY_DEFAULT_BUDGET_MS"]) == ("2", "9000")
    assert json.loads(told["HEDGEROW_GATEWAY_HEDGE"]) == {"mode": "fixed"}
    alone = specs_of("models: {a: x/y}\ncache: off\n", folder)
    assert list(alone) == ["router", "llm-a", "gateway"]
    for name in ("CACHE", "VISION", "AUDIO"):
        assert alone["gateway"].environment[f"HEDGEROW_GATEWAY_{name}_ADDRESS"] == ""


def tools_of(told: Mapping[str, str]) -> dict[str, Any]:
    return json.loads(told["HEDGEROW_GATEWAY_TOOLS"])


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
    def told(tools: str) -> Any:
        text = f"models: {{a: x/y}}\ngateway: {{settings: {{tools: {tools}}}}}\n"
        return tools_of(specs_of(text, folder)["gateway"].environment)

    both = told("{max_steps: 3, sources: {files: {url: 'http://127.0.0.1:1/mcp'}}}")
    assert (both["max_steps"], list(both["sources"])) == (3, ["files", "collections"])
    own = told("{sources: {collections: {address: 'x:1'}}}")
    assert own["sources"] == {"collections": {"address": "x:1"}}
    assert told("[]") == [], "what is wrong is for the gateway to say"
    assert told("{sources: 3}") == {"sources": 3}


def test_the_routers_catalogue_has_tiers_prices_and_what_a_folder_says_of_its_context(folder: Path) -> None:
    remote, local = json.loads(specs_of(FULL, folder)["router"].environment["HEDGEROW_ROUTER_MODELS"])
    assert len({remote.pop("identity"), local.pop("identity")}) == 2
    assert remote == {
        "name": "remote", "tier": "quality", "context_tokens": 128000, "prompt_usd_per_mtok": 0.5,
        "completion_usd_per_mtok": 1.5, "expected_ttft_ms": 300,
    }  # fmt: skip
    assert (local["name"], local["tier"], local["context_tokens"]) == ("local", "balanced", 4096)


ANTHROPIC = "url: 'https://api.anthropic.com/v1', engine: anthropic, model: claude-sonnet-4-5"
PUBLIC = {
    "context_tokens": 200_000, "prompt_usd_per_mtok": 3, "completion_usd_per_mtok": 15,
    "cached_prompt_usd_per_mtok": 0.3, "cache_write_usd_per_mtok": 3.75,
}  # fmt: skip


@pytest.mark.parametrize(
    ("said", "row"),
    [
        (ANTHROPIC, PUBLIC),
        (f"{ANTHROPIC}, context_tokens: 1000000", {**PUBLIC, "context_tokens": 1_000_000}),
        (
            f"{ANTHROPIC}, prices: {{input: 1, output: 2}}",
            {"context_tokens": 200_000, "prompt_usd_per_mtok": 1, "completion_usd_per_mtok": 2},
        ),
        ("url: 'https://llm.example/v1', model: claude-sonnet-4-5", {}),
        ("hub: x/y", {}),
    ],
)
def test_what_the_file_does_not_say_of_a_providers_model_is_what_is_public_of_it(
    folder: Path, said: str, row: dict[str, float]
) -> None:
    specs = specs_of(f"models: {{m: {{{said}}}}}\n", folder)
    (told,) = json.loads(specs["router"].environment["HEDGEROW_ROUTER_MODELS"])
    assert {name: told[name] for name in told if name not in ("name", "tier", "identity")} == row
    assert RouterSettings(models=[told]).models[0].context_tokens == row.get("context_tokens", 0)
    engine = json.loads(specs["llm-m"].environment.get("HEDGEROW_LLM_ANTHROPIC", "{}"))
    assert engine.get("context_tokens") == (1_000_000 if "1000000" in said else None), "what is public may be old"


def test_what_replicas_share_and_where_traces_go_is_told_to_those_who_need_it(folder: Path) -> None:
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
    told = specs_of(FULL, folder)["gateway"].environment
    assert told["HEDGEROW_GATEWAY_TENANTS_FILE"] == str(folder / "state" / TENANTS_FILE)


def test_a_process_keeps_its_port_when_others_come_and_go(folder: Path) -> None:
    file = file_of("models: {a: x/y, b: x/z}\n", folder)
    ports = ports_of(file)
    before = {each.spec.name: each.spec for each in processes(file, ports, folder, ENVIRONMENT)}
    other = file_of("models: {c: x/c, b: x/z}\n", folder)
    after = {each.spec.name: each.spec for each in processes(other, ports, folder, ENVIRONMENT)}
    assert after["llm-b"] == before["llm-b"]
    assert after["llm-c"].address not in {spec.address for spec in before.values()}


def test_in_compose_keys_are_references_and_folders_are_mounted(folder: Path) -> None:
    text = compose.render(file_of(FULL, folder), ENVIRONMENT, "registry.example/h")
    assert KEY not in text
    assert "a-callers-key" not in text
    services = yaml.safe_load(text)["services"]
    assert services["llm-remote"]["environment"]["HEDGEROW_LLM_OPENAI__API_KEY"] == "${PROVIDER_KEY:?}"
    assert services["gateway"]["environment"]["HEDGEROW_GATEWAY_REDIS_URL"] == "${REDIS:?}"
    assert services["gateway"]["image"] == f"registry.example/h/gateway:{VERSION}"
    (mount,) = services["llm-local-1"]["volumes"]
    assert mount["source"] == str(folder / "model")
    assert mount["target"] == services["llm-local-1"]["environment"]["HEDGEROW_LLM_VLLM__MODEL"] == "/models/model"


def test_in_compose_a_dollar_is_a_dollar(folder: Path) -> None:
    text = compose.render(file_of("models:\n  a: {hub: x/y, options: {revision: $A}}\n", folder), ENVIRONMENT)
    assert '"revision": "$$A"' in yaml.safe_load(text)["services"]["llm-a"]["environment"]["HEDGEROW_LLM_VLLM"]


def test_without_tenants_compose_lets_in_who_is_on_this_machine_and_nobody_else(folder: Path) -> None:
    name, tenants = "HEDGEROW_GATEWAY_ALLOW_ANONYMOUS", "tenants: {t: {key_env: CALLER_KEY}}\n"
    out, http = "gateway: '0.0.0.0:50050'\n", "gateway: {http: '0.0.0.0:8080'}\n"
    for text, opened in (("", "true"), (out, None), (http, None), (tenants, None)):
        rendered = compose.render(file_of(f"models: {{a: x/y}}\n{text}", folder), ENVIRONMENT)
        assert yaml.safe_load(rendered)["services"]["gateway"]["environment"].get(name) == opened


def test_what_leads_to_this_machines_loopback_is_told_for_containers(folder: Path) -> None:
    found = helm.planned(file_of("models: {a: 'http://127.0.0.1:8000/v1', b: 'http://h:1/v1'}\n", folder))
    assert elsewhere(found) == ["llm-a: HEDGEROW_LLM_OPENAI leads to 127.0.0.1, which is the container itself there"]


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
def test_a_gateway_is_told_which_requests_get_stored_answers(said: str, hits: dict[str, Any], folder: Path) -> None:
    told = specs_of(f"models: {{local: ./model}}\n{said}", folder)["gateway"].environment
    assert json.loads(told.get("HEDGEROW_GATEWAY_HITS", "{}")) == hits


def test_a_tenants_own_parts_of_a_profile_reach_the_gateways_file(folder: Path) -> None:
    own = "prompt: {diet: system, conversation: cut}, max_tokens: 300, default_budget_ms: 9000, check_forms: true"
    file = file_of(f"models: {{local: ./model}}\ntenants: {{acme: {{key_env: CALLER_KEY, {own}}}}}", folder)
    told = tenants_of(file, ENVIRONMENT)["acme"]
    assert {name: told[name] for name in told if name != "keys"} == yaml.safe_load(f"{{{own}}}")
    assert TenantSettings.model_validate(told).prompt.conversation == "cut"


def test_keys_that_expire_reach_the_gateways_file_with_the_time(folder: Path) -> None:
    first, second = "a" * 64, "f" * 64
    keys = f"[{first}, {{sha256: {second}, expires: 2027-01-31 18:00:00 +02:00}}]"
    file = file_of(f"models: {{local: ./model}}\ntenants: {{acme: {{key_sha256: {keys}}}}}", folder)
    told = tenants_of(file, ENVIRONMENT)["acme"]
    assert told == {"keys": [first, {"sha256": second, "expires": "2027-01-31T16:00:00Z"}]}
    assert [key.expires and key.expires.isoformat() for key in TenantSettings.model_validate(told).keys] == [
        None,
        "2027-01-31T16:00:00+00:00",
    ]


def test_a_models_service_and_the_router_say_alike_what_it_is(folder: Path) -> None:
    specs = specs_of("models: {local: ./model, far: https://api.example/v1}", folder)
    rows = {row["name"]: row["identity"] for row in json.loads(specs["router"].environment["HEDGEROW_ROUTER_MODELS"])}
    told = {name: specs[f"llm-{name}"].environment["HEDGEROW_LLM_IDENTITY"] for name in rows}
    assert told == rows
    assert len({*told.values()}) == 2
