"""The mesh of `hedgerow up` without a file: of `--model`, or of the keys in the environment."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from launcher.meshfile import provider_models
from launcher.meshfile.fields import Surroundings
from launcher.meshfile.reading import parse
from launcher.meshfile.template import PROVIDERS
from launcher.meshfile.without_file import NOTHING, USUAL, Given, named_by_servers, sections, with_its_name, write

OPENAI = {"OPENAI_API_KEY": "sk-of-openai"}
ANTHROPIC = {"ANTHROPIC_API_KEY": "sk-of-anthropic"}
AZURE = {"AZURE_OPENAI_API_KEY": "k", "AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com/"}
VLLM = "http://127.0.0.1:8000/v1"


def test_nothing_is_named_without_a_key_and_a_model() -> None:
    assert sections(Given(), {"OPENAI_API_KEY": " ", "PATH": "/bin", **AZURE}) == {}
    assert "hedgerow up --model NAME=" in NOTHING


def test_a_key_stands_for_two_models_of_its_provider() -> None:
    found = sections(Given(), OPENAI | ANTHROPIC)
    assert {name: (each["key_env"], each["tier"], *each["url"]) for name, each in found.items()} == {
        "gpt-5-mini": ("OPENAI_API_KEY", "fast", "https://api.openai.com/v1"),
        "gpt-5": ("OPENAI_API_KEY", "quality", "https://api.openai.com/v1"),
        "claude-haiku-4-5": ("ANTHROPIC_API_KEY", "fast", "https://api.anthropic.com/v1"),
        "claude-sonnet-4-5": ("ANTHROPIC_API_KEY", "quality", "https://api.anthropic.com/v1"),
    }
    assert found["claude-haiku-4-5"]["engine"] == "anthropic"


@pytest.mark.parametrize(("provider", "model"), [(name, each) for name, models in USUAL.items() for each in models])
def test_the_usual_models_have_public_prices(provider: str, model: str) -> None:
    found = provider_models.find(PROVIDERS[provider].url, model)
    assert found.input
    assert found.output
    assert found.context_tokens


def test_the_page_names_every_usual_model_and_every_provider() -> None:
    page = (Path(__file__).parents[4] / "docs/proxy.md").read_text()
    assert {each for models in USUAL.values() for each in models if f"`{each}`" not in page} == set()
    assert {each for each in (*PROVIDERS, "azure") if f"`{each}`" not in page and f"`{each}:" not in page} == set()


def test_azure_needs_a_key_an_endpoint_and_deployments() -> None:
    found = sections(Given(), {**AZURE, "AZURE_OPENAI_DEPLOYMENT": "small, large"})
    assert [*found] == ["small", "large"]
    assert found["small"] == {
        "url": ["https://mine.openai.azure.com/openai/v1"],
        "model": "small",
        "sees": True,
        "key_env": "AZURE_OPENAI_API_KEY",
        "options": {"dialect": "azure"},
    }
    assert sections(Given(["azure:large"]), AZURE).keys() == {"large"}
    with pytest.raises(ValueError, match="AZURE_OPENAI_ENDPOINT is not set"):
        sections(Given(["azure:large"]), {"AZURE_OPENAI_API_KEY": "k"})


def test_models_that_are_named_are_the_only_ones() -> None:
    assert sections(Given([f"m={VLLM}"]), OPENAI).keys() == {"m"}


def test_a_provider_is_where_its_own_clients_look_for_it() -> None:
    environment = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1/", "ANTHROPIC_BASE_URL": "http://127.0.0.1:8"}
    found = sections(Given(), OPENAI | ANTHROPIC | environment)
    assert found["gpt-5"]["url"] == ["http://127.0.0.1:9/v1"]
    assert found["claude-haiku-4-5"]["url"] == ["http://127.0.0.1:8/v1"]


@pytest.mark.parametrize("url", ["http://127.0.0.1:6030/v1", "http://localhost:6030/v1"])
def test_a_model_url_with_the_address_of_the_mesh_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="the address of the mesh itself; see OPENAI_BASE_URL"):
        sections(Given(base_port=6000, host="0.0.0.0"), {**OPENAI, "OPENAI_BASE_URL": url})


def test_a_url_may_say_the_name_that_the_model_has_there() -> None:
    found = sections(Given([f"small={VLLM}#Qwen/Qwen3-8B"], "VLLM_API_KEY"), {})
    assert found == {"small": {"url": [VLLM], "model": "Qwen/Qwen3-8B", "sees": True, "key_env": "VLLM_API_KEY"}}


def test_urls_of_one_name_are_replicas() -> None:
    found = sections(Given([f"m={VLLM}#q", "m=http://127.0.0.1:8001/v1#q"]), {})
    assert found["m"]["url"] == [VLLM, "http://127.0.0.1:8001/v1"]
    with pytest.raises(ValueError, match="one name for two models"):
        sections(Given([f"m={VLLM}#q", "m=openai:gpt-5"]), OPENAI)


def test_a_known_providers_url_is_called_with_its_own_key() -> None:
    found = sections(Given(["g=https://api.openai.com/v1", "a=https://x.openai.azure.com/openai/v1"], "MINE"), {})
    assert (found["g"]["key_env"], found["g"]["model"]) == ("OPENAI_API_KEY", "g")
    assert (found["a"]["key_env"], found["a"]["options"]) == ("AZURE_OPENAI_API_KEY", {"dialect": "azure"})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (VLLM, f"a name is needed before the URL: NAME={VLLM}"),
        ("http://h/v1?a=b", "a name is needed"),
        ("openai:", "NAME=URL or PROVIDER:MODEL is needed; providers: openai, anthropic"),
        ("m=./folder", "NAME=URL or PROVIDER:MODEL is needed"),
        ("nobody:gpt", "NAME=URL or PROVIDER:MODEL is needed"),
    ],
)
def test_an_invalid_model_is_refused_with_the_valid_forms(given: str, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("?", ".").replace("[", ".")):
        sections(Given([given]), {})


@pytest.mark.parametrize("given", [Given(), Given([f"m={VLLM}", "claude=anthropic:claude-opus-4-5"], base_port=7000)])
def test_the_written_file_is_a_valid_mesh_file(given: Given, tmp_path: Path) -> None:
    environment = OPENAI | ANTHROPIC | {"HEDGEROW_API_KEY": "of-callers"}
    models = sections(given, environment)
    for each in models.values():
        each.pop("ask", None)
    text = write(given, models, environment)
    file = parse(text, "it", Surroundings(tmp_path, environment)).whole()
    assert file.models.keys() == models.keys()
    assert file.gateway.http_address == f"127.0.0.1:{given.base_port + 30}"
    assert (file.cache.enabled, file.tenants["me"].key_env) == (False, ["HEDGEROW_API_KEY"])
    assert "sk-of-" not in text


def test_callers_from_elsewhere_need_a_key() -> None:
    given = Given([f"m={VLLM}#m"], host="0.0.0.0")
    with pytest.raises(ValueError, match="callers from elsewhere need a key; set HEDGEROW_API_KEY"):
        write(given, sections(given, {}), {})
    content = yaml.safe_load(write(given, sections(given, {}), {"HEDGEROW_API_KEY": "k"}))
    assert content["gateway"] == {"address": "0.0.0.0:50050", "http": "0.0.0.0:50080", "plaintext": True}


async def test_a_model_at_a_url_gets_the_name_of_the_only_one_there(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def listed(url: str, key: str) -> list[str]:
        asked.append((url, key))
        return ["Qwen/Qwen3-8B"] if url == VLLM else ["a", "b"]

    monkeypatch.setattr("launcher.meshfile.without_file._listed", listed)
    models = sections(Given([f"m={VLLM}", "n=http://127.0.0.1:1/v1", "p=http://h/v1#x"], "K"), {})
    found = await named_by_servers(models, {"K": " secret "})
    assert {name: each["model"] for name, each in found.items()} == {"m": "Qwen/Qwen3-8B", "n": "n", "p": "x"}
    assert all("ask" not in each for each in found.values())
    assert sorted(asked) == [("http://127.0.0.1:1/v1", "secret"), (VLLM, "secret")]


async def test_a_url_that_cannot_be_asked_leaves_the_model_its_name() -> None:
    section = {"url": ["http://127.0.0.1:port/v1"], "model": "m"}
    assert await with_its_name(section, "") == section


def test_a_model_that_does_not_chat_says_behind_a_comma_what_it_serves() -> None:
    named = [f"m={VLLM}", f"e={VLLM}#bge,serves=embeddings,rerank", "openai:text-embedding-3-small,serves=embeddings"]
    found = sections(Given(named), OPENAI)
    assert {name: each.get("serves") for name, each in found.items()} == {
        "m": None,
        "e": ["embeddings", "rerank"],
        "text-embedding-3-small": ["embeddings"],
    }
    assert found["e"]["model"] == "bge"
    del found["m"]["ask"]
    text = write(Given(), found, OPENAI)
    models = parse(text, "hedgerow up", Surroundings(Path.cwd(), OPENAI)).file.models
    assert [model.methods for model in models.values()] == [(), ("embeddings", "rerank"), ("embeddings",)]


@pytest.mark.parametrize("option", ["serves=chatting", "serves=", "serve=embeddings", "embeddings"])
def test_another_word_behind_the_comma_is_refused_with_those_that_may_be_there(option: str) -> None:
    with pytest.raises(ValueError, match="serves= and one or several of chat, embeddings, rerank, moderations"):
        sections(Given([f"e={VLLM},{option}"]), {})
