"""Chat completions, read into the gateway's own contract."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.messages import NO_TEXT
from services.gateway.errors import ModelUnknown
from services.gateway.http.dialects.chat_request import ROLES, read_chat
from services.gateway.http.fields import parse
from services.runtime.errors import InvalidInput
from tests.unit.gateway.http.chats import ASKED, read, refused

Format = chat_pb2.ResponseFormat
PIXELS = base64.b64encode(b"pixels").decode()


def test_a_question_is_read() -> None:
    order = read(stream=True, stream_options={"include_usage": True}, temperature=0.5, seed=2**40)
    assert order.request == pb.GenerateRequest(
        model="m",
        messages=[chat_pb2.Message(role=chat_pb2.ROLE_USER, content="Hello")],
        sampling=chat_pb2.Sampling(temperature=0.5, seed=2**40),
    )
    assert (order.stream, order.usage, order.model) == (True, True, "m")
    assert read(usage={"include": True}).usage


def test_the_sampling_fields_of_vllm_s_servers_are_read() -> None:
    own = {"top_k": -1, "min_p": 0.5, "repetition_penalty": 1.5, "min_tokens": 0, "ignore_eos": True}
    sampling = read(**own, stop_token_ids=[9, 2]).request.sampling
    assert sampling == chat_pb2.Sampling(**own, stop_token_ids=[9, 2])
    assert read(ignore_eos=False).request == read(stop_token_ids=[]).request == read().request


def test_unknown_fields_and_nulls_are_ignored() -> None:
    assert read(service_tier="auto", made_up={"a": 1}, temperature=None, tools=None) == read()


@pytest.mark.parametrize(
    ("name", "tier"), [("auto", pb.TIER_UNSPECIFIED), ("fast", pb.TIER_FAST), ("quality", pb.TIER_QUALITY)]
)
def test_a_tier_can_be_asked_for_as_a_model(name: str, tier: pb.Tier) -> None:
    request = read(model=name).request
    assert (request.model, request.tier) == ("", tier)


def test_the_error_of_an_unknown_model_lists_those_there_are() -> None:
    with pytest.raises(ModelUnknown, match="one of m, auto, fast, balanced, quality, got gpt-9"):
        read(model="gpt-9")


def test_the_newer_name_of_the_most_tokens_wins() -> None:
    assert read(max_tokens=5, max_completion_tokens=7).request.sampling.max_tokens == 7
    assert read(max_tokens=5).request.sampling.max_tokens == 5


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ({"structured_outputs": {"regex": "a+", "json": None}}, Format(regex="a+")),
        ({"structured_outputs": {"json": {"type": "object"}}}, Format(json_schema='{"type":"object"}')),
        ({"structured_outputs": {"json": "{}"}}, Format(json_schema="{}")),
        ({"structured_outputs": {"json_object": True}}, Format(json_object=True)),
    ],
)
def test_the_formats_of_vllms_servers_are_read(body: dict[str, Any], wanted: Format) -> None:
    assert read(**body).request.response_format == wanted


def test_a_penalty_of_0_is_none_so_that_models_without_penalties_take_it() -> None:
    assert read(frequency_penalty=0, presence_penalty=0.0).request == read().request
    assert read(frequency_penalty=0.5).request.sampling.frequency_penalty == 0.5


@pytest.mark.parametrize("stop", ["end", ["end"]])
def test_stop_is_one_or_several(stop: str | list[str]) -> None:
    assert read(stop=stop).request.sampling.stop == ["end"]


def test_a_conversation_with_tools_is_read() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}
    messages = [
        {"role": "developer", "content": "Be kind."},
        *ASKED,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
    ]
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    function = {"name": "add", "description": "Adds.", "parameters": schema, "strict": True}
    request = read(
        messages=messages,
        tools=[{"type": "function", "function": function}],
        tool_choice={"type": "function", "function": {"name": "add"}},
        parallel_tool_calls=False,
    ).request
    assert [message.role for message in request.messages] == [1, 2, 3, 4]
    assert request.messages[2].tool_calls[0] == chat_pb2.ToolCall(id="c1", name="add", arguments='{"a":1}')
    assert request.messages[3].tool_call_id == "c1"
    assert json.loads(request.tools[0].parameters) == schema
    assert (request.tools[0].strict, request.tool_choice.name) == (True, "add")
    assert request.parallel_tool_calls is False
    assert request.HasField("parallel_tool_calls")


def test_parts_of_text_alone_are_text() -> None:
    content = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert read(messages=[{"role": "user", "content": content}]).request.messages[0].content == "onetwo"


def test_pictures_and_recordings_keep_their_order_among_the_text() -> None:
    content = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXELS}", "detail": "low"}},
        {"type": "input_audio", "input_audio": {"data": PIXELS, "format": "wav"}},
    ]
    message = read(messages=[{"role": "user", "content": content}]).request.messages[0]
    assert [part.WhichOneof("kind") for part in message.parts] == ["text", "image", "audio"]
    assert message.parts[1].image == b"pixels"


@pytest.mark.parametrize("blanks", ["\n", "\r\n", " \t\f"])
def test_wrapped_lines_of_base64_are_read_as_one(blanks: str) -> None:
    url = f"data:image/png;base64,{blanks.join(PIXELS)}{blanks}"
    message = read(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}])
    assert message.request.messages[0].parts[0].image == b"pixels"


def test_a_picture_elsewhere_is_never_fetched_but_left_for_a_provider() -> None:
    content = [{"type": "image_url", "image_url": {"url": "http://169.254.169.254/"}}]
    message = read(messages=[{"role": "user", "content": content}]).request.messages[0]
    assert (message.content, list(message.parts)) == ("[image_url]", [])


def test_blank_turns_stand_for_nothing_and_a_refusal_for_its_text() -> None:
    turns: list[dict[str, Any]] = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": ""},
        {"role": "assistant", "content": None, "refusal": "No."},
        {"role": "user", "content": " "},
    ]
    said = [(each.role, each.content) for each in read(messages=turns).request.messages]
    assert said == [(chat_pb2.ROLE_USER, "Hello"), (chat_pb2.ROLE_ASSISTANT, "No."), (chat_pb2.ROLE_USER, NO_TEXT)]


@pytest.mark.parametrize("turn", [{"role": "user"}, {"role": "user", "content": None}])
def test_a_users_turn_has_content(turn: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="content: a string, or an array of parts, got"):
        read(messages=[turn])


@pytest.mark.parametrize("role", ["system", "assistant"])
def test_policies_read_a_message_behind_which_only_a_provider_goes_on(role: str) -> None:
    first, last = read(messages=[{"role": role, "content": "Hello"}]).request.messages
    assert (first.role, first.content) == (ROLES[role], "Hello")
    assert (last.role, last.content) == (chat_pb2.ROLE_USER, NO_TEXT)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"n": 0}, "n: 1 to 128, got 0"),
        ({"n": 129}, "n: 1 to 128, got 129"),
        ({"temperature": "hot"}, "temperature: a number, got 'hot'"),
        ({"max_tokens": 1.5}, "max_tokens: a whole number, got 1.5"),
        ({"max_tokens": 2**31}, "max_tokens: -2147483648 to 2147483647, got 2147483648"),
        ({"messages": "hi"}, "messages: an array, got 'hi'"),
        ({"messages": [1]}, "messages[0]: an object, got 1"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role: one of system, developer"),
        ({"messages": [{"content": "x"}]}, "messages[0].role: one of system, developer"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content: a string, or an array of parts, got 7"),
        ({"functions": [{"name": "f"}]}, "functions: not supported, got an array"),
        ({"messages": [True]}, "messages[0]: an object, got True"),
        ({"tools": [{"type": 7}]}, "tools[0].type: a string, got 7"),
        ({"tool_choice": "perhaps"}, "tool_choice: one of none, auto, required, got 'perhaps'"),
        ({"top_logprobs": 3}, "top_logprobs: only with logprobs true, got 3"),
        ({"logit_bias": {"x": 1}}, "logit_bias.x: a token's number, got x"),
        ({"top_k": 1.5}, "top_k: a whole number, got 1.5"),
        ({"ignore_eos": "yes"}, "ignore_eos: true or false, got 'yes'"),
        ({"stop_token_ids": 1}, "stop_token_ids: an array, got 1"),
        ({"stop_token_ids": [1, "2"]}, "stop_token_ids[1]: a whole number, got '2'"),
        ({"stop_token_ids": [None]}, "stop_token_ids[0]: a whole number, got null"),
        ({"response_format": {"type": "xml"}}, "response_format.type: one of text, json_object, json_schema, regex"),
        ({"response_format": {"type": "grammar"}}, "response_format.grammar: a string, got null"),
        (
            {"structured_outputs": {}},
            "structured_outputs: one of json, json_object, regex, choice, grammar, alone, got n",
        ),
        (
            {"structured_outputs": {"regex": "a", "choice": ["a"]}},
            "structured_outputs.regex: one of json, json_object, regex, choice, grammar, alone, got regex and choice",
        ),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema: an object, got null"),
        ({"hedgerow": {"budget": 3}}, "hedgerow.budget: one of budget_ms,"),
        ({"hedgerow": {"cache": "maybe"}}, "hedgerow.cache: one of bypass, exact, use, got 'maybe'"),
        ({"modalities": ["text", 7]}, "modalities[1]: a string, got 7"),
    ],
)
def test_a_refusal_names_the_field_the_limit_and_the_value(body: dict[str, Any], message: str) -> None:
    assert refused(**body).startswith(message)


def test_log_probabilities_are_asked_for() -> None:
    assert read(logprobs=True).request.sampling.HasField("top_logprobs")
    assert read(logprobs=True, top_logprobs=4).request.sampling.top_logprobs == 4
    assert not read(logprobs=False, top_logprobs=0).request.sampling.HasField("top_logprobs")


def test_a_schema_is_passed_on_as_it_is() -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1, "ü"]}}}
    given = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    assert json.loads(read(response_format=given).request.response_format.json_schema) == schema
    assert read(response_format={"type": "json_object"}).request.response_format.json_object
    assert not read(response_format={"type": "text"}).request.HasField("response_format")


def test_a_clients_retries_are_counted_as_attempts() -> None:
    assert read({"x-stainless-retry-count": "2"}).request.attempt == 2


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"a": NaN}', b"\xff", b'{"a":1,"a":2}', b"[" * 100_000])
def test_a_body_that_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"^body: "):
        parse(body)


def test_a_number_of_5000_digits_is_refused_wherever_it_stands() -> None:
    digits = "1" * 5_000
    assert refused(logit_bias={digits: 1}).startswith("logit_bias.1111111111111111: a token's number")
    assert read({"x-stainless-retry-count": digits}).request.attempt == 1_000
    with pytest.raises(InvalidInput, match="number out of range"):
        parse(b'{"seed":' + digits.encode() + b"}")


def test_no_more_is_read_of_a_long_array_than_its_limit() -> None:
    tool = {"type": "function", "function": {"name": "t"}}
    assert refused(tools=[tool] * 513) == "tools: at most 512, got more"
    assert refused(stop=["x"] * 65) == "stop: at most 64, got 65"
    given = parse(json.dumps({"model": "m", "messages": ASKED * 3}).encode())
    with pytest.raises(InvalidInput, match="messages: at most 2, got 3"):
        read_chat(given, {}, ["m"], 2)
