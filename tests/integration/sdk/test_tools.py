"""Functions that a model has the SDK call, with a scripted gateway over a real connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

import hedgerow
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from tests.integration.scripted_gateway import TRACE_ID, ScriptedGateway, answer, final, serve_script
from tests.integration.sdk.blocking import blocking


class AskedInTurn(ScriptedGateway):
    """Each request has the next of these answers, and the last one for all that follow."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[Sequence[Any]] = []

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.script = self.answers[min(len(self.requests), len(self.answers) - 1)]
        async for step in self.answer(request, context):
            yield step


@pytest.fixture
async def gateway() -> AsyncIterator[AskedInTurn]:
    async with serve_script(AskedInTurn()) as served:
        yield served


def calling(*calls: tuple[str, str]) -> list[pb.GenerateResponse]:
    made = [
        chat_pb2.ToolCall(id=f"call-{index}", name=name, arguments=text) for index, (name, text) in enumerate(calls)
    ]
    return answer(tool_calls=made, finish_reason=chat_pb2.FINISH_REASON_TOOL_CALLS)


def weather(city: str) -> dict[str, int]:
    """The highest temperature."""
    return {"highest": len(city)}


async def test_functions_are_called_until_the_model_answers(gateway: AskedInTurn) -> None:
    gateway.answers = [calling(("weather", '{"city": "Oslo"}'), ("wait", "{}")), answer("No.")]
    seen: list[Any] = []

    async def wait() -> str:
        await asyncio.sleep(0)
        return "done"

    async with hedgerow.AsyncClient(gateway.target) as client:
        got = await client.run_tools(
            "A coat?", tools=[weather, wait], on_call=lambda call, result: seen.append((call.name, result))
        )
    assert (got.text, seen) == ("No.", [("weather", {"highest": 4}), ("wait", "done")])
    first, second = gateway.requests
    assert [tool.name for tool in first.tools] == ["weather", "wait"]
    assert [(turn.role, turn.content, turn.tool_call_id) for turn in second.messages[1:]] == [
        (chat_pb2.ROLE_ASSISTANT, "", ""),
        (chat_pb2.ROLE_TOOL, '{"highest": 4}', "call-0"),
        (chat_pb2.ROLE_TOOL, "done", "call-1"),
    ]


async def test_a_coroutine_function_needs_the_asyncio_client(gateway: AskedInTurn) -> None:
    gateway.answers = [calling(("wait", "{}"))]

    async def wait() -> None: ...

    with pytest.raises(TypeError, match=r"wait is a coroutine function: it needs hedgerow\.AsyncClient"):
        await blocking(hedgerow.Client(gateway.target), lambda client: client.run_tools("?", tools=[wait]))


async def test_after_the_last_step_the_model_must_answer_within_what_is_left_of_the_budget(
    gateway: AskedInTurn,
) -> None:
    gateway.answers = [calling(("weather", '{"city": "Oslo"}'))]
    async with hedgerow.AsyncClient(gateway.target) as client:
        await client.run_tools("A coat?", tools=[weather], max_steps=2, tool_choice="required", budget_ms=5_000)
    modes = [request.tool_choice.mode for request in gateway.requests]
    assert modes == [chat_pb2.TOOL_MODE_REQUIRED, chat_pb2.TOOL_MODE_UNSPECIFIED, chat_pb2.TOOL_MODE_NONE]
    budgets = [request.budget_ms for request in gateway.requests]
    assert 0 < budgets[2] <= budgets[1] <= budgets[0] <= 5_000


async def test_arguments_that_do_not_match_are_reported_to_the_model(gateway: AskedInTurn) -> None:
    gateway.answers = [calling(("weather", '{"city": 7}')), answer("No.")]
    async with hedgerow.AsyncClient(gateway.target) as client:
        await client.run_tools("A coat?", tools=[weather])
    assert gateway.requests[1].messages[-1].content == "error: city: string, got 7"


async def test_an_exception_of_a_tool_function_is_raised(gateway: AskedInTurn) -> None:
    gateway.answers = [calling(("fail", "{}"))]

    def fail() -> None:
        raise KeyError("mine")

    async with hedgerow.AsyncClient(gateway.target) as client:
        with pytest.raises(KeyError, match="mine"):
            await client.run_tools("?", tools=[fail])
        with pytest.raises(hedgerow.InvalidArgument, match="tools: at least one function, got none"):
            await client.run_tools("?")


async def test_a_call_of_a_tool_that_was_not_offered_is_refused_by_name(gateway: AskedInTurn) -> None:
    gateway.answers = [calling(("wether", "{}"))]
    async with hedgerow.AsyncClient(gateway.target) as client:
        with pytest.raises(
            hedgerow.Internal, match=r"the model called the tool wether, .*; offered: weather"
        ) as caught:
            await client.ask("?", tools=[weather])
    assert (caught.value.reason, caught.value.trace_id) == ("TOOL_NOT_OFFERED", TRACE_ID)
    assert caught.value.metadata == {"tool": "wether", "offered": "weather"}


async def test_an_unknown_tool_call_in_a_batch_is_an_error_of_its_item(gateway: AskedInTurn) -> None:
    call = chat_pb2.ToolCall(id="1", name="wether")
    gateway.script = [pb.GenerateBatchResponse(index=0, final=final("", tool_calls=[call]))]
    async with hedgerow.AsyncClient(gateway.target) as client:
        ((_, error),) = [pair async for pair in client.batch(["?"], tools=[weather])]
    assert isinstance(error, hedgerow.Internal)
    assert error.reason == "TOOL_NOT_OFFERED"


async def test_each_request_of_a_run_has_an_idempotency_key_of_its_own(gateway: AskedInTurn) -> None:
    call = calling(("weather", '{"city": "Oslo"}'))
    gateway.answers = [call, call, answer("No.")]
    async with hedgerow.AsyncClient(gateway.target) as client:
        await client.run_tools("A coat?", tools=[weather], idempotency_key="coat")
    assert [request.idempotency_key for request in gateway.requests] == ["coat", "coat/1", "coat/2"]
