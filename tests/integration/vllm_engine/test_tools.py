"""Tools, as vLLM has the demo model call them."""

from __future__ import annotations

import grpc
import jsonschema
import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from tests.integration.vllm_engine.service import (
    ASSISTANT,
    CITY,
    FRANCE,
    START_S,
    Service,
    ask,
    called,
    offering,
)

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(2 * START_S)]


async def test_a_tool_that_must_be_called_is_called_with_what_its_schema_says(service: Service) -> None:
    for seed in range(3):
        request = offering(chat_pb2.ToolChoice(name="weather"), temperature=1.5, seed=seed)
        ((name, arguments),) = await called(service, request)
        assert (name, arguments["city"] in ("Oslo", "Rome"), arguments["days"] in (1, 2, 3)) == ("weather", True, True)
    assert await called(service, offering(chat_pb2.ToolChoice(name="clock"))) == [("clock", {})]


async def test_one_of_several_tools_is_called_where_one_must_be(service: Service) -> None:
    for seed in range(3):
        request = offering(chat_pb2.ToolChoice(mode=chat_pb2.TOOL_MODE_REQUIRED), temperature=1.5, seed=seed)
        request.parallel_tool_calls = False
        ((name, arguments),) = await called(service, request)
        if name == "weather":
            jsonschema.validate(arguments, CITY)
        else:
            assert (name, arguments) == ("clock", {})


@pytest.mark.parametrize("strict", [False, True])
async def test_a_model_that_calls_no_tool_answers_as_without_any(service: Service, strict: bool) -> None:
    request = offering()
    for tool in request.tools:
        tool.strict = strict
    text, finish = await service.answer(request)
    assert (text, finish.reason) == ("The capital of France is Paris.", chat_pb2.FINISH_REASON_STOP)
    text, _ = await service.answer(offering(chat_pb2.ToolChoice(mode=chat_pb2.TOOL_MODE_NONE)))
    assert text == "The capital of France is Paris."


async def test_a_conversation_goes_on_from_a_tool_s_result(service: Service) -> None:
    call = chat_pb2.ToolCall(id="call_1", name="weather", arguments="{no JSON")
    request = ask(FRANCE)
    request.messages.add(role=ASSISTANT, tool_calls=[call])
    request.messages.add(role=chat_pb2.ROLE_TOOL, tool_call_id="call_1", content="rain")
    _, finish = await service.answer(request)
    counted = await service.stub.CountTokens(llm_pb2.CountTokensRequest(messages=request.messages), timeout=30)
    assert counted.tokens == finish.usage.prompt_tokens


async def test_a_tool_whose_schema_would_hold_up_the_engine_is_refused(service: Service) -> None:
    request = ask(FRANCE)
    request.tools.add(name="costly", parameters='{"type": "object", "properties": {"a": {"multipleOf": 1000003}}}')
    request.tool_choice.name = "costly"
    assert (await service.refusal(request))[:2] == (grpc.StatusCode.INVALID_ARGUMENT, "tools")
