"""Clients that nobody here wrote, unmodified, against the gateway by HTTP: each in a process of its own, with the
packages that its users have (`tests/clients/`), before scripted services."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bench.environments import NotInstalled, environment, kept, run
from hedgerow.vision.v1 import vision_pb2
from tests.conftest import REPOSITORY, starting
from tests.integration.answering_llm import answering_llm
from tests.integration.http_gateway import HttpGateway, start_http_gateway
from tests.integration.scripted_audio import recording, segment, serve_audio
from tests.integration.scripted_cache import VECTOR, serve_cache
from tests.integration.scripted_vision import TIMING, labels, serve_vision

# The first run fetches packages.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

SCRIPTS = REPOSITORY / "tests/clients"
NEEDED = "HEDGEROW_TESTS_NEED_CLIENTS"  # no package index is then no reason to leave them out; `.ci/run` says so
PICTURE, SPOKEN = b"a picture", b"RIFF....WAVE"
WITHIN_S = 150

PARIS, WEATHER, SEEN, HEARD = "Paris.", "It is sunny.", "A red circle.", "Hello there."
CITY = {"city": "Paris"}
VECTORS = [list(VECTOR)] * 2
TOTAL = 9  # tokens


class Installed:
    """The folders of what is installed, each fetched when it is first asked for."""

    def python(self, name: str) -> Path:
        """The `bin` of the environment that `<name>.txt` lists."""
        listed = (SCRIPTS / f"{name}.txt").read_text()
        return _there(lambda: environment(f"client-{name}", listed))

    def node(self) -> Path:
        """`node_modules` as the lock has them."""
        if not shutil.which("npm"):
            pytest.skip("there is no npm")
        lock = (SCRIPTS / "package-lock.json").read_text()
        return _there(lambda: kept("clients-node", lock, _npm)) / "node_modules"


def _there(install: Callable[[], Path]) -> Path:
    try:
        return install()
    except NotInstalled as problem:
        if NEEDED in os.environ:
            raise
        pytest.skip(f"its packages cannot be fetched ({NEEDED} makes that a failure): {problem}")


def _npm(folder: Path) -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(SCRIPTS / name, folder)
    run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", folder=folder)


async def output(*command: str | Path, **environment: str) -> tuple[int, str, str]:
    """How a program ended, and what it said. It finds nothing of ours."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=PIPE, stderr=PIPE, env={**own, **environment}
    )
    try:
        async with asyncio.timeout(WITHIN_S):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, out.decode(), err.decode()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HttpGateway]:
    """One gateway for all of them, with everything that it can have behind it."""
    async with AsyncExitStack() as stack:
        llm, vision, audio, cache = [
            await stack.enter_async_context(each)
            for each in (answering_llm(), serve_vision(), serve_audio(), serve_cache())
        ]
        vision.script = [vision_pb2.ClassifyResponse(results=[labels(("red circle", 0.99))], timing=TIMING)]
        audio.script = recording(segment(0, HEARD))
        addresses = {
            f"{name}_address": each.target for name, each in (("vision", vision), ("audio", audio), ("cache", cache))
        }
        start = await stack.enter_async_context(starting(tmp_path_factory.mktemp("logs")))
        yield await start_http_gateway(start, llm, l1_cache_entries="0", **addresses)  # each answer is the model's


@pytest.fixture(scope="module")
def installed() -> Installed:
    return Installed()


Ask = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture
def ask(gateway: HttpGateway, installed: Installed) -> Ask:
    """Runs a script of `tests/clients/` and returns what each of its checks has seen."""
    given = [f"{gateway.url}/v1", *(base64.b64encode(each).decode() for each in (PICTURE, SPOKEN))]

    async def ask(name: str) -> dict[str, Any]:
        if name.endswith(".js"):
            told = await output("node", SCRIPTS / name, *given, NODE_PATH=str(installed.node()))
        else:
            python = installed.python(name.removeprefix("with_").removesuffix(".py")) / "python"
            told = await output(python, SCRIPTS / name, *given)
        code, out, err = told
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
            "unknown_model": NOT_FOUND,
            "bad_input": BAD,
            "busy": BUSY,
            "retried": PARIS,
        },
    )


async def test_openais_agents_by_both_apis(ask: Ask) -> None:
    either = {
        "whole": PARIS,
        "tools": WEATHER,
        "streamed": [WEATHER, ["tool_called", "tool_output", "message_output_created"]],
        "schema": "Paris",
        "picture": SEEN,
        "unknown_model": NOT_FOUND,
        "bad_input": BAD,
        "retried": PARIS,
    }
    agree(await ask("with_openai_agents.py"), {"chat": either, "responses": either, "busy": BUSY})


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
