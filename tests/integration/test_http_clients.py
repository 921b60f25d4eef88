"""Third-party clients, unmodified, against the gateway by HTTP: each in a process of its own, with the
packages that its users have, before scripted services."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.foreign_clients import HEARD, SCRIPTS, Installed, output, whole_gateway
from tests.integration.http_gateway import HttpGateway
from tests.integration.scripted_cache import VECTOR

# The first run fetches packages.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

PICTURE, SPOKEN = b"a picture", b"RIFF....WAVE"
PARIS, WEATHER, SEEN = "Paris.", "It is sunny.", "A red circle."
CITY = {"city": "Paris"}
VECTORS = [list(VECTOR)] * 2
TOTAL = 9  # tokens


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HttpGateway]:
    """One for all of them."""
    async with whole_gateway(tmp_path_factory.mktemp("logs")) as running:
        yield running


Ask = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture
def ask(gateway: HttpGateway) -> Ask:
    """Runs a script of `tests/clients/` and returns what each of its checks has seen."""
    installed = Installed()
    given = [f"{gateway.url}/v1", *(base64.b64encode(each).decode() for each in (PICTURE, SPOKEN))]

    async def ask(name: str) -> dict[str, Any]:
        if name.endswith(".js"):
            printed = await output("node", SCRIPTS / name, *given, NODE_PATH=str(installed.node()))
        else:
            python = installed.python(name.removeprefix("with_").removesuffix(".py")) / "python"
            printed = await output(python, SCRIPTS / name, *given)
        code, out, err = printed
        assert code == 0, err
        return json.loads(out.splitlines()[-1])

    return ask


def agree(seen: dict[str, Any], expected: dict[str, Any]) -> None:
    """Fail with those that differ, each with its traceback where it raised."""
    wrong = [
        f"{name}: {seen.get(name)}\n  expected: {value}" for name, value in expected.items() if seen.get(name) != value
    ]
    assert not wrong, "\n".join(wrong)
    assert seen.keys() == expected.keys()


NOT_FOUND, BAD = ["NotFoundError", 404, "model"], ["BadRequestError", 400, "temperature"]
BUSY = ["RateLimitError", 429, None]


async def test_langchain(ask: Ask) -> None:
    agree(
        await ask("with_langchain.py"),
        {
            "whole": [PARIS, TOTAL, "stop"],
            "streamed": [PARIS, [TOTAL]],
            "tools": ["weather", CITY, WEATHER],
            "tools_streamed": [["weather", CITY]],
            "schema": "Paris",
            "schema_by_tool": "Paris",
            "plain_schema": CITY,
            "picture": SEEN,
            "recording": PARIS,
            "responses": PARIS,
            "responses_streamed": PARIS,
            "embeddings": VECTORS,
            "unknown_model": ["OpenAIModelNotFoundError", 404, "model"],
            "bad_input": ["OpenAIInvalidRequestError", 400, "temperature"],
            "busy": ["OpenAIRateLimitError", 429, None],
            "retried": PARIS,
        },
    )


async def test_llama_index(ask: Ask) -> None:
    agree(
        await ask("with_llama_index.py"),
        {
            "whole": [PARIS, TOTAL],
            "streamed": PARIS,
            "completed": PARIS,
            "tools": ["weather", CITY, WEATHER],
            "tools_streamed": [["weather", CITY]],
            "schema": "Paris",
            "schema_by_tool": "Paris",
            "picture": SEEN,
        },
    )


async def test_openais_agents_by_both_apis(ask: Ask) -> None:
    either = {
        "whole": PARIS,
        "tools": WEATHER,
        "streamed": [WEATHER, ["tool_called", "tool_output", "message_output_created"]],
        "schema": "Paris",
        "picture": SEEN,
    }
    agree(await ask("with_openai_agents.py"), {"chat": either, "responses": either, "stored": [WEATHER, PARIS]})


async def test_openai_for_node(ask: Ask) -> None:
    agree(
        await ask("with_openai.js"),
        {
            "whole": [PARIS, TOTAL, "stop"],
            "streamed": [PARIS, TOTAL],
            "left": True,
            "tools": WEATHER,
            "tools_streamed": ["weather", CITY],
            "schema": CITY,
            "picture": SEEN,
            "recording": PARIS,
            "completed": PARIS,
            "responses": PARIS,
            "responses_streamed": [PARIS, "response.completed"],
            "embeddings": VECTORS,
            "transcription": HEARD,
            "transcription_streamed": ["transcript.text.delta", "transcript.text.done"],
            "models": ["m", "auto", "fast", "balanced", "quality"],
            "unknown_model": NOT_FOUND,
            "bad_input": BAD,
            "busy": BUSY,
            "retried": PARIS,
        },
    )


async def test_vercels_ai(ask: Ask) -> None:
    agree(
        await ask("with_ai_sdk.js"),
        {
            "whole": [PARIS, TOTAL, "stop"],
            "streamed": [PARIS, TOTAL, "stop"],
            "tools": [WEATHER, 2, CITY],
            "tools_streamed": [WEATHER, 2],
            "schema": CITY,
            "picture": SEEN,
            "completed": PARIS,
            "embeddings": VECTORS,
            "unknown_model": ["AI_APICallError", 404, "model"],
            "unknown_model_streamed": ["AI_APICallError", 404],
            "bad_input": ["AI_APICallError", 400, "temperature"],
            "busy": ["AI_APICallError", 429, None],
            "retried": PARIS,
        },
    )


async def test_anthropic_for_node(ask: Ask) -> None:
    agree(
        await ask("with_anthropic.js"),
        {
            "whole": [PARIS, 2, "end_turn"],
            "streamed": PARIS,
            "tools": ["weather", CITY, WEATHER],
            "picture": SEEN,
            "counted": 6,
            "unknown_model": ["NotFoundError", 404, None],
            "bad_input": ["BadRequestError", 400, None],
            "busy": BUSY,
            "retried": PARIS,
        },
    )
