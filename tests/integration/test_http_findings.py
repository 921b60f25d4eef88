"""Where tools' results come from, and what came late, in streams by HTTP: official clients, unmodified."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import openai
import pytest
import pytest_asyncio
from openai import AsyncOpenAI

from hedgerow import AsyncClient
from hedgerow.tool.v1 import tool_pb2
from launcher.processes import free_port
from tests.conftest import starting
from tests.integration.calling_llm import QUESTION, CallingLlm, calling_llm, listed, start_gateway
from tests.integration.foreign_clients import SCRIPTS, Installed, output
from tests.integration.scripted_tool_service import serve_tools

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

# The first run fetches packages.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

SAID = "It rains."
CHAT: Any = {"model": "m", "messages": [{"role": "user", "content": QUESTION}]}
RESPONSE: Any = {"model": "m", "input": QUESTION}
MESSAGE: Any = {**CHAT, "max_tokens": 50}
PLACE = {"source": "met.no", "title": "Forecast", "text": "rain", "score": 0.9}
FOUND = {"citations": [{"tool": "weather", "citations": [PLACE]}]}
LATE = {"patches": [{"stage": "tool:news", "text": "a fox"}]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def behind(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[str, CallingLlm]]:
    """A gateway with a tool that answers at once, and one whose time is over before it does; and its model."""
    port = free_port()
    logs = tmp_path_factory.mktemp("logs")
    async with calling_llm() as llm, serve_tools() as quick, serve_tools() as late, starting(logs) as start:
        cited = tool_pb2.CallToolResponse(content="rain", citations=[tool_pb2.Citation(**PLACE)])
        quick.says = {"weather": (0.0, cited)}
        late.says = {"news": (llm.begins, tool_pb2.CallToolResponse(content="a fox"))}
        sources = {
            "quick": {"address": quick.target, "call_ms": 10_000},
            "late": {"address": late.target, "call_ms": 200},
        }
        address = await start_gateway(start, llm, sources, http_address=f"127.0.0.1:{port}")
        async with AsyncClient(address) as client:
            await listed(client, "weather", "news")
        yield f"http://127.0.0.1:{port}", llm


@pytest.fixture
def llm(behind: tuple[str, CallingLlm]) -> CallingLlm:
    """Late results come between the words of the answer."""
    _, llm = behind
    llm.first_s, llm.pause_s, llm.awaited = 0.0, 0.8, True
    llm.forget_waiting()
    return llm


@pytest_asyncio.fixture(loop_scope="module")
async def openai_(behind: tuple[str, CallingLlm], llm: CallingLlm) -> AsyncIterator[AsyncOpenAI]:
    url, _ = behind
    strict = AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, _strict_response_validation=True)
    async with strict as connected:
        yield connected


@pytest_asyncio.fixture(loop_scope="module")
async def anthropic_(behind: tuple[str, CallingLlm], llm: CallingLlm) -> AsyncIterator[AsyncAnthropic]:
    from anthropic import AsyncAnthropic  # takes two seconds, of every worker's if it were above

    url, _ = behind
    strict = AsyncAnthropic(base_url=url, api_key="any", max_retries=0, _strict_response_validation=True)
    async with strict as connected:
        yield connected


def wanted(**more: Any) -> Any:
    """The body beside what its API has."""
    return {"hedgerow": {"mesh_tools": ["weather", "news"], "findings": True, **more}}


def in_order(seen: list[Any]) -> None:
    """Fail unless the citations are there before the first text, and the late result before the last one."""
    found = [each for each in seen if isinstance(each, dict)]
    assert found == [FOUND, LATE]
    assert "".join(each for each in seen if isinstance(each, str)) == SAID
    assert seen.index(FOUND) < seen.index("It ")
    assert seen.index("It ") < seen.index(LATE)


async def test_openais_client_reads_findings_between_the_texts_of_a_chat(openai_: AsyncOpenAI) -> None:
    stream = await openai_.chat.completions.create(
        **CHAT, stream=True, stream_options={"include_usage": True}, extra_body=wanted()
    )
    *chunks, last = [chunk async for chunk in stream]
    seen = [
        chunk.model_extra["hedgerow"] if "hedgerow" in chunk.model_extra else chunk.choices[0].delta.content or ""
        for chunk in chunks
    ]
    in_order(seen)
    assert all(len(chunk.choices) == 1 for chunk in chunks)
    account = last.model_extra["hedgerow"]
    assert {name: account[name] for name in ("citations", "patches")} == FOUND | LATE


async def test_openais_accumulators_accept_findings(openai_: AsyncOpenAI) -> None:
    async with openai_.chat.completions.stream(**CHAT, extra_body=wanted()) as stream:
        async for _ in stream:
            pass
        assert (await stream.get_final_completion()).choices[0].message.content == SAID
    async with openai_.responses.stream(**RESPONSE, extra_body=wanted()) as events:
        async for _ in events:
            pass
        assert (await events.get_final_response()).output_text == SAID


async def test_a_finding_is_no_text_that_silence_could_follow(openai_: AsyncOpenAI, llm: CallingLlm) -> None:
    llm.first_s, llm.pause_s = 1.0, 0.0
    stream = await openai_.chat.completions.create(**CHAT, stream=True, extra_body=wanted(silence_ms=300))
    texts = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(texts) == SAID


async def test_a_failure_after_a_finding_is_an_event_of_the_stream(
    openai_: AsyncOpenAI, anthropic_: AsyncAnthropic, llm: CallingLlm
) -> None:
    import anthropic

    llm.first_s = 30.0
    with pytest.raises(openai.APIError) as late:
        async for _ in await openai_.chat.completions.create(**CHAT, stream=True, extra_body=wanted(budget_ms=1_500)):
            pass
    assert late.value.code == "budget_timeout"
    with pytest.raises(anthropic.APIError) as failed:
        async for _ in await anthropic_.messages.create(**MESSAGE, stream=True, extra_body=wanted(budget_ms=1_500)):
            pass
    assert failed.value.body["error"]["code"] == "budget_timeout"


async def test_clients_for_node_accept_findings(behind: tuple[str, CallingLlm], llm: CallingLlm) -> None:
    url, _ = behind
    code, out, err = await output("node", SCRIPTS / "findings.js", f"{url}/v1", NODE_PATH=str(Installed().node()))
    assert code == 0, err
    seen = json.loads(out)
    assert seen.pop("openai_gathered") == SAID
    for name, end in {"openai": [], "responses": [SAID], "ai": ["stop"], "anthropic": [SAID, "end_turn"]}.items():
        assert isinstance(seen[name], list), seen[name]  # else it is what was raised
        in_order(seen[name][:5])
        assert seen[name][5:] == end


async def test_langchain_accepts_findings(behind: tuple[str, CallingLlm], llm: CallingLlm) -> None:
    url, _ = behind
    python = Installed().python("langchain") / "python"
    code, out, err = await output(python, SCRIPTS / "findings_with_langchain.py", f"{url}/v1")
    assert code == 0, err
    assert json.loads(out) == {"streamed": SAID, "responses": SAID}
