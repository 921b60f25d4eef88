"""Models of a mesh file: the settings of their services, of the gateway and of the router."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from services.router.config import RouterSettings
from tests.unit.launcher.meshfile.mesh_files import FULL, KEY, specs_of


def test_a_provider_is_configured_with_its_url_its_model_and_its_key(folder: Path) -> None:
    environment = specs_of(FULL, folder)["llm-remote"].environment
    assert (environment["HEDGEROW_LLM_MODEL_NAME"], environment["HEDGEROW_LLM_ENGINE"]) == ("remote", "openai")
    assert json.loads(environment["HEDGEROW_LLM_OPENAI"]) == {
        "base_url": "https://api.example/v1", "model": "big-one", "context_tokens": 128000, "http_version": "2",
    }  # fmt: skip
    assert environment["HEDGEROW_LLM_OPENAI__API_KEY"] == KEY
    assert environment["HEDGEROW_LLM_MAX_TOKENS_CAP"] == environment["HEDGEROW_LLM_DEFAULT_MAX_TOKENS"] == "1000"


def test_an_embedding_model_is_configured_as_one_with_the_gateway_and_the_router_has_its_price(folder: Path) -> None:
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


def test_several_urls_of_a_model_are_its_replicas(folder: Path) -> None:
    specs = specs_of("models:\n  m: {url: ['http://a/v1', 'http://b/v1'], replicas: 2}\n", folder)
    names = ["llm-m-1-1", "llm-m-1-2", "llm-m-2-1", "llm-m-2-2"]
    urls = {name: json.loads(specs[name].environment["HEDGEROW_LLM_OPENAI"])["base_url"] for name in names}
    assert list(urls.values()) == ["http://a/v1", "http://a/v1", "http://b/v1", "http://b/v1"]
    addresses = json.loads(specs["gateway"].environment["HEDGEROW_GATEWAY_LLM_ADDRESSES"])
    assert addresses == {"m": [specs[name].address for name in names]}


def test_vllm_is_configured_with_its_folder_and_options(folder: Path) -> None:
    environment = specs_of(FULL, folder)["llm-local-2"].environment
    assert (environment["HEDGEROW_LLM_ENGINE"], environment["HEDGEROW_LLM_VLLM__MODEL"]) == (
        "vllm",
        str(folder / "model"),
    )
    assert json.loads(environment["HEDGEROW_LLM_VLLM"]) == {"enforce_eager": True}
    assert environment["HEDGEROW_LLM_GRACE_MS"] == "9"


def test_an_engine_of_ones_own_is_given_the_settings_of_the_one_it_stands_for(folder: Path) -> None:
    text = "models:\n  a: {url: 'http://a/v1', engine: 'mine.engine:start', options: {http_version: '2'}}\n"
    environment = specs_of(text, folder)["llm-a"].environment
    assert environment["HEDGEROW_LLM_ENGINE"] == "mine.engine:start"
    assert json.loads(environment["HEDGEROW_LLM_OPENAI"]) == {
        "base_url": "http://a/v1",
        "model": "a",
        "http_version": "2",
    }


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
def test_unset_properties_of_a_providers_model_are_the_public_ones(
    folder: Path, said: str, row: dict[str, float]
) -> None:
    specs = specs_of(f"models: {{m: {{{said}}}}}\n", folder)
    (entry,) = json.loads(specs["router"].environment["HEDGEROW_ROUTER_MODELS"])
    assert {name: entry[name] for name in entry if name not in ("name", "tier", "identity", "sees")} == row
    assert RouterSettings(models=[entry]).models[0].context_tokens == row.get("context_tokens", 0)
    engine = json.loads(specs["llm-m"].environment.get("HEDGEROW_LLM_ANTHROPIC", "{}"))
    assert engine.get("context_tokens") == (1_000_000 if "1000000" in said else None), (
        "a public default of the context length is not sent, because it may be outdated"
    )


@pytest.mark.parametrize(
    ("said", "sees"),
    [
        (ANTHROPIC, True),
        (f"{ANTHROPIC}, sees: false", False),
        (f"{ANTHROPIC}, options: {{features: [tools]}}", False),
        ("url: 'http://vllm:8000/v1', model: Qwen/Qwen2.5-VL-7B-Instruct", True),
        ("url: 'http://vllm:8000/v1', model: Qwen/Qwen3-8B", False),
        ("url: 'http://vllm:8000/v1', model: mine, sees: true", True),
        ("url: 'http://vllm:8000/v1', model: mine, options: {features: [images]}", True),
        ("url: 'http://vllm:8000/v1', engine: 'mine.engine:start', model: gpt-5", False),
        ("hub: llava-hf/llava-1.5-7b-hf", True),
    ],
)
def test_a_model_receives_pictures_by_the_file_or_else_by_its_family(folder: Path, said: str, sees: bool) -> None:
    specs = specs_of(f"models: {{m: {{{said}}}}}\n", folder)
    (entry,) = json.loads(specs["router"].environment["HEDGEROW_ROUTER_MODELS"])
    assert entry.get("sees", False) == sees
    openai = json.loads(specs["llm-m"].environment.get("HEDGEROW_LLM_OPENAI", "{}"))
    assert not openai or ("images" in openai.get("features", [])) == sees


def test_the_router_and_a_models_service_have_the_same_identity(folder: Path) -> None:
    specs = specs_of("models: {local: ./model, far: https://api.example/v1}", folder)
    rows = {row["name"]: row["identity"] for row in json.loads(specs["router"].environment["HEDGEROW_ROUTER_MODELS"])}
    identities = {name: specs[f"llm-{name}"].environment["HEDGEROW_LLM_IDENTITY"] for name in rows}
    assert identities == rows
    assert len({*identities.values()}) == 2
