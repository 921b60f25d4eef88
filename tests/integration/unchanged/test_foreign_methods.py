"""Embeddings and rerank by other providers' Python packages, unmodified, with a gateway and without it: the provider
gets the same requests, and the client comes to the same result. Behind it stand simulated providers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import pytest_asyncio

from launcher.processes import free_port
from tests.conftest import starting
from tests.integration.foreign_clients import SCRIPTS, Installed, output
from tests.integration.unchanged.simulated_methods import MOST_TEXTS, TOKENS, SimulatedMethods, simulated_methods
from tests.recording_provider import Asked

# The first run fetches packages.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]
KEY, OPERATORS = "sk-of-the-caller", "sk-of-the-operator"  # the first as in `tests/clients/provider_methods.py`
AZURE = {"openai__dialect": "azure", "openai__api_version": "2024-10-21"}
# Each model with the path of its provider's API, and what it serves.
MODELS: dict[str, tuple[str, list[str], dict[str, str]]] = {
    "rerank-v3.5": ("/v2", ["rerank"], {}),
    "voyage-3.5": ("/v1", ["embeddings", "rerank"], {}),
    "unknown": ("/v1", ["embeddings"], {}),
    "tei": ("", ["rerank"], {}),
    "vectors": ("/openai", ["embeddings"], AZURE),
}


@dataclass(frozen=True)
class Served:
    """The provider, and the URL of the gateway before it. Tenants need a key."""

    provider: SimulatedMethods
    url: str


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    port, addresses = free_port(), dict[str, str]()
    async with simulated_methods() as provider, starting(tmp_path_factory.mktemp("logs")) as start:
        for name, (path, apis, options) in {"chats": ("/v1", [], {}), **MODELS}.items():
            own = {"openai__base_url": provider.url + path, "openai__api_key": OPERATORS, "openai__model": name}
            own |= {"openai__apis": json.dumps(apis)} if apis else {}
            addresses[name] = (
                await start("llm", name.replace(".", "-"), engine="openai", **own, **options)
            ).spec.address
        await start(
            "gateway",
            llm_addresses=json.dumps(addresses),
            serves=json.dumps({name: apis for name, (_, apis, _) in MODELS.items()}),
            tenants=json.dumps({"acme": {"keys": [hashlib.sha256(KEY.encode()).hexdigest()]}}),
            cache_address="",
            router_address="",
            http_address=f"127.0.0.1:{port}",
        )
        yield Served(provider, f"http://127.0.0.1:{port}")


@pytest_asyncio.fixture(loop_scope="module")
async def http(served: Served) -> AsyncIterator[httpx.AsyncClient]:
    served.provider.asked.clear()
    served.provider.answered.clear()
    key = {"authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(base_url=served.url, headers=key, timeout=20) as client:
        yield client


def plain(asked: Asked) -> Any:
    return asked.path, asked.body


def came_from(asked: Asked) -> str:
    """The credential of a request."""
    return asked.headers.get("api-key") or asked.headers["authorization"].removeprefix("Bearer ")


async def test_cohere_voyage_mistral_and_azure_come_to_the_same_result(served: Served) -> None:
    python = Installed().python("methods") / "python"
    code, out, err = await output(python, SCRIPTS / "provider_methods.py", served.provider.url, served.url)
    assert code == 0, err
    direct, came = json.loads(out.splitlines()[-1])
    assert came == direct
    assert direct == {
        "cohere_rerank": [1, 0.999071, 1, ["BadRequestError", "invalid request: list of documents must not be empty"]],
        "voyage": [[[0.25, -1.5]] * 2, TOKENS, 1, TOKENS, ["InvalidRequestError", "Model unknown is not supported."]],
        "mistral": [[0.25, -1.5], TOKENS],
        "azure": [[0.25, -1.5], TOKENS, "vectors"],
    }
    sent, arrived = (
        [plain(each) for each in served.provider.asked if came_from(each) == key] for key in (KEY, OPERATORS)
    )
    assert [_named(*each) for each in sent] == [_named(*each) for each in arrived]
    assert len(sent) == 8


def _named(path: str, body: dict[str, Any]) -> Any:
    """A request to an Azure deployment, with the model that its path names."""
    deployment = path.startswith("/openai/deployments/")
    return path, {**body, "model": path.split("/")[3]} if deployment else body


async def test_text_embeddings_inference_ranks_in_its_own_words(served: Served, http: httpx.AsyncClient) -> None:
    """A client of it names no model: here the first that ranks is another one, so the model is named."""
    body = {"query": "q", "texts": ["a", "b"], "truncate": True, "raw_scores": False}
    answer = await http.post("/rerank", json={**body, "model": "tei"})
    assert (answer.status_code, answer.content) == (200, served.provider.answered[-1])
    assert plain(served.provider.asked[-1]) == ("/rerank", {**body, "model": "tei"})
    refused = await http.post("/rerank", json={**body, "model": "tei", "texts": ["a"] * (MOST_TEXTS + 1)})
    assert refused.status_code == 422
    assert refused.json()["message"] == json.loads(served.provider.answered[-1])["error"]
    assert refused.json()["error"]["error_type"] == "Validation"
    refused = await http.post("/rerank", json={**body, "model": "tei", "texts": "a"})
    assert refused.status_code == 422
    assert refused.json()["message"] == served.provider.answered[-1].decode(), (
        "a body that is not JSON becomes the message"
    )


async def test_an_answer_is_byte_for_byte_the_providers(served: Served, http: httpx.AsyncClient) -> None:
    for path in ("/v1/rerank", "/v2/rerank"):
        body = {"model": "rerank-v3.5", "query": "q", "documents": ["a", {"text": "b"}], "top_n": 2, "priority": 1e0}
        answer = await http.post(path, json=body)
        assert (answer.status_code, answer.content) == (200, served.provider.answered[-1])
        assert plain(served.provider.asked[-1]) == ("/v2/rerank", body)
