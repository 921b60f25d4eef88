"""The other APIs of the gateway: completions, Responses and Messages, by their makers' unmodified clients."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2 as pb
from tests.integration.http_gateway import HttpGateway
from tests.integration.scripted import Hold, Refusal
from tests.integration.scripted_llm import ScriptedLlm, end, words
from tests.waiting import budgets_ms, until

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

ASKED = "What is the capital of France?"
MESSAGE = {"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": ASKED}]}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.fixture
async def anthropic_(gateway: HttpGateway) -> AsyncIterator[AsyncAnthropic]:
    from anthropic import AsyncAnthropic  # takes two seconds, of every worker's if it were above

    async with AsyncAnthropic(
        base_url=gateway.url, api_key="any", max_retries=0, _strict_response_validation=True
    ) as connected:
        yield connected


def call(llm: ScriptedLlm) -> None:
    """Have the model think and call a tool."""
    first = chat_pb2.ToolCallDelta(index=0, id="c1", name="add", arguments='{"a":')
    more = chat_pb2.ToolCallDelta(index=0, arguments="1}")
    llm.script = [
        pb.GenerateResponse(reasoning="Hm."),
        pb.GenerateResponse(tool_calls=[first]),
        pb.GenerateResponse(tool_calls=[more]),
        end("TOOL_CALLS"),
    ]


async def test_a_prompt_is_completed(openai_: AsyncOpenAI, llm: ScriptedLlm) -> None:
    whole = await openai_.completions.create(model="m", prompt=ASKED, max_tokens=5)
    assert (whole.choices[0].text, whole.choices[0].finish_reason) == ("Paris.", "stop")
    assert llm.requests[0].messages[0].content == ASKED
    # Strictly, every chunk of a stream would need a finish reason: OpenAI's own have none either.
    lenient = openai_.with_options(default_headers={"x-hedgerow-cache": "bypass"})
    lenient._strict_response_validation = False
    stream = await lenient.completions.create(
        model="m", prompt=[ASKED], stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == "Paris."
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 9


async def test_a_response_is_whole(openai_: AsyncOpenAI, llm: ScriptedLlm) -> None:
    llm.script = [*words('{"capital": ', '"Paris"}'), end()]
    response = await openai_.responses.create(
        model="m", instructions="Be brief.", input=ASKED, text={"format": {"type": "json_object"}}
    )
    assert (response.output_text, response.status) == ('{"capital": "Paris"}', "completed")
    assert response.usage is not None
    assert response.usage.output_tokens_details.reasoning_tokens == 0
    assert [message.role for message in llm.requests[0].messages] == [1, 2]
    assert llm.requests[0].response_format.json_object
    assert response.model_extra["hedgerow"]["finish_reason"] == "stop"


async def test_a_response_streams_every_step(openai_: AsyncOpenAI) -> None:
    stream = await openai_.responses.create(model="m", input=ASKED, stream=True)
    events = [event async for event in stream]
    assert [event.type.removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [event.sequence_number for event in events] == list(range(10))
    assert events[-1].response.output_text == "Paris."
    assert events[-1].response.id == events[0].response.id


async def test_openais_own_accumulator_takes_a_response_with_a_thought_and_a_call(
    openai_: AsyncOpenAI, llm: ScriptedLlm
) -> None:
    call(llm)
    tool = {"type": "function", "name": "add", "parameters": SCHEMA, "strict": False}
    async with openai_.responses.stream(model="m", input=ASKED, tools=[tool]) as stream:
        async for _ in stream:
            pass
        response = await stream.get_final_response()
    thought, called = response.output
    assert (thought.type, thought.content[0].text) == ("reasoning", "Hm.")
    assert (called.type, called.call_id, called.arguments) == ("function_call", "c1", '{"a":1}')
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": ASKED}]},
        *(item.model_dump(exclude_none=True, mode="json") for item in response.output),
        {"type": "function_call_output", "call_id": "c1", "output": "2"},
    ]
    llm.script = [*words("2"), end()]
    answer = await openai_.responses.create(model="m", input=items, tools=[tool])
    assert answer.output_text == "2"
    assert [message.role for message in llm.requests[-1].messages] == [2, 3, 4]


async def test_a_response_that_its_budget_ends_is_incomplete(openai_: AsyncOpenAI, llm: ScriptedLlm) -> None:
    llm.script = [*words("Par"), Hold()]
    budgets = budgets_ms()

    async def ask() -> Response | None:
        options = {"budget_ms": next(budgets)}
        with suppress(openai.APIStatusError):  # of no text in time
            return await openai_.responses.create(model="m", input=ASKED, extra_body={"hedgerow": options})
        return None

    response = await until(ask)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.model_extra["hedgerow"]["finish_reason"] == "budget"


async def test_a_response_or_a_message_that_is_none_of_its_choices_is_an_error(
    openai_: AsyncOpenAI, anthropic_: AsyncAnthropic
) -> None:
    import anthropic

    form = {"choice": ["Rome.", "Oslo."]}
    typed = {"format": {"type": "choice", **form}}
    with pytest.raises(openai.InternalServerError) as broken:
        await openai_.responses.create(model="m", input=ASKED, extra_body={"text": typed})
    assert (broken.value.status_code, broken.value.code) == (502, "form_broken")
    with pytest.raises(anthropic.InternalServerError) as failed:
        await anthropic_.messages.create(**MESSAGE, extra_body={"output_config": typed})
    assert failed.value.status_code == 502


async def test_anthropics_client_gets_a_message(anthropic_: AsyncAnthropic, llm: ScriptedLlm) -> None:
    message = await anthropic_.messages.create(**MESSAGE, system="Be brief.", stop_sequences=["x"])
    assert (message.content[0].type, message.content[0].text) == ("text", "Paris.")
    assert (message.stop_reason, message.usage.input_tokens, message.usage.output_tokens) == ("end_turn", 7, 2)
    request = llm.requests[0]
    assert [each.role for each in request.messages] == [1, 2]
    assert (request.sampling.max_tokens, list(request.sampling.stop)) == (50, ["x"])


async def test_anthropics_client_reads_a_stream(anthropic_: AsyncAnthropic) -> None:
    events = [event async for event in await anthropic_.messages.create(**MESSAGE, stream=True)]
    assert [event.type for event in events] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert events[0].message.usage.input_tokens > 0
    assert events[-2].usage.output_tokens == 2


async def test_anthropics_own_accumulator_takes_a_thought_and_a_call(
    anthropic_: AsyncAnthropic, llm: ScriptedLlm
) -> None:
    call(llm)
    tools = [{"name": "add", "description": "Adds.", "input_schema": SCHEMA}]
    async with anthropic_.messages.stream(**MESSAGE, tools=tools, tool_choice={"type": "any"}) as stream:
        message = await stream.get_final_message()
    thought, called = message.content
    assert (thought.type, thought.thinking) == ("thinking", "Hm.")
    assert (called.type, called.name, called.input) == ("tool_use", "add", {"a": 1})
    assert message.stop_reason == "tool_use"
    assert llm.requests[0].tool_choice.mode == chat_pb2.TOOL_MODE_REQUIRED
    result = {"type": "tool_result", "tool_use_id": called.id, "content": [{"type": "text", "text": "2"}]}
    history = [
        *MESSAGE["messages"],
        {"role": "assistant", "content": message.content},
        {"role": "user", "content": [result, {"type": "text", "text": "And?"}]},
    ]
    llm.script = [*words("2"), end()]
    await anthropic_.messages.create(**{**MESSAGE, "messages": history}, tools=tools)
    assert [each.role for each in llm.requests[-1].messages] == [2, 3, 4, 2]
    assert json.loads(llm.requests[-1].messages[1].tool_calls[0].arguments) == {"a": 1}


async def test_the_beginning_of_an_answer_is_gone_on_with(anthropic_: AsyncAnthropic, llm: ScriptedLlm) -> None:
    llm.script = [*words(" is Paris."), end()]
    history = [*MESSAGE["messages"], {"role": "assistant", "content": "It"}]
    message = await anthropic_.messages.create(**{**MESSAGE, "messages": history})
    assert message.content[0].text == " is Paris."
    assert llm.requests[-1].prefix == "It"


async def test_tokens_are_counted_by_the_model(anthropic_: AsyncAnthropic) -> None:
    counted = await anthropic_.messages.count_tokens(model="m", system="Be brief.", messages=MESSAGE["messages"])
    assert counted.input_tokens == 8


async def test_anthropics_client_lists_and_finds_models(anthropic_: AsyncAnthropic) -> None:
    import anthropic

    listed = await anthropic_.models.list()
    assert [each.display_name for each in listed.data] == ["m", "auto", "fast", "balanced", "quality"]
    assert (listed.first_id, listed.last_id, listed.has_more) == ("m", "quality", False)
    assert (await anthropic_.models.retrieve("m")).type == "model"
    with pytest.raises(anthropic.NotFoundError):
        await anthropic_.models.retrieve("n")


async def test_anthropics_client_finds_the_id_of_its_request(anthropic_: AsyncAnthropic) -> None:
    import anthropic

    own = {"x-request-id": "mine-1"}
    assert (await anthropic_.messages.create(**MESSAGE, extra_headers=own))._request_id == "mine-1"
    with pytest.raises(anthropic.NotFoundError) as unknown:
        await anthropic_.messages.create(**{**MESSAGE, "model": "unknown"}, extra_headers=own)
    assert unknown.value.request_id == "mine-1"


async def test_anthropics_client_gets_errors_in_its_own_shape(anthropic_: AsyncAnthropic, llm: ScriptedLlm) -> None:
    import anthropic

    with pytest.raises(anthropic.NotFoundError):
        await anthropic_.messages.create(**{**MESSAGE, "model": "claude-x"})
    with pytest.raises(anthropic.BadRequestError, match="thread: none: each request"):
        await anthropic_.messages.create(**MESSAGE, extra_body={"thread": "t"})
    llm.script = [*words("Par"), Refusal("UNAVAILABLE", "gone")]
    with pytest.raises(anthropic.APIStatusError, match="broke in mid-answer"):
        async for _ in await anthropic_.messages.create(**MESSAGE, stream=True):
            pass
