"""Chat completions, read into the gateway's own contract."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.errors import ModelUnknown
from services.gateway.http.dialects.chat_request import read_chat
from services.gateway.http.fields import parse
from services.gateway.http.request_options import RequestOptions, settle_replacing
from services.runtime.errors import InvalidInput

ASKED = [{"role": "user", "content": "Hello"}]
Format = chat_pb2.ResponseFormat
CHOICE = Format(choice=chat_pb2.Choice(values=["yes", "no"]))
PIXELS = base64.b64encode(b"pixels").decode()


def read(headers: dict[str, str] | None = None, **body: Any) -> RequestOptions:
    given = parse(json.dumps({"model": "m", "messages": ASKED, **body}).encode())
    return read_chat(given, headers or {}, ["m"])


def refused(headers: dict[str, str] | None = None, **body: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        read(headers, **body)
    return caught.value.message


def test_a_question_is_read() -> None:
    order = read(stream=True, stream_options={"include_usage": True}, temperature=0.5, seed=2**40)
    assert order.request == pb.GenerateRequest(
        model="m",
        messages=[chat_pb2.Message(role=chat_pb2.ROLE_USER, content="Hello")],
        sampling=chat_pb2.Sampling(temperature=0.5, seed=2**40),
    )
    assert (order.stream, order.usage, order.model) == (True, True, "m")


def test_the_sampling_fields_of_vllm_s_servers_are_read() -> None:
    own = {"top_k": -1, "min_p": 0.5, "repetition_penalty": 1.5, "min_tokens": 0, "ignore_eos": True}
    sampling = read(**own, stop_token_ids=[9, 2]).request.sampling
    assert sampling == chat_pb2.Sampling(**own, stop_token_ids=[9, 2])
    assert read(ignore_eos=False).request == read(stop_token_ids=[]).request == read().request


def test_what_nobody_knows_and_what_is_null_is_no_matter() -> None:
    assert read(service_tier="auto", made_up={"a": 1}, temperature=None, tools=None) == read()


@pytest.mark.parametrize(
    ("name", "tier"), [("auto", pb.TIER_UNSPECIFIED), ("fast", pb.TIER_FAST), ("quality", pb.TIER_QUALITY)]
)
def test_a_tier_can_be_asked_for_as_a_model(name: str, tier: pb.Tier) -> None:
    request = read(model=name).request
    assert (request.model, request.tier) == ("", tier)


def test_an_unknown_model_is_told_with_those_there_are() -> None:
    with pytest.raises(ModelUnknown, match="one of m, auto, fast, balanced, quality, got gpt-9"):
        read(model="gpt-9")


def test_the_newer_name_of_the_most_tokens_wins() -> None:
    assert read(max_tokens=5, max_completion_tokens=7).request.sampling.max_tokens == 7
    assert read(max_tokens=5).request.sampling.max_tokens == 5


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ({"response_format": {"type": "choice", "choice": ["yes", "no"]}}, CHOICE),
        ({"structured_outputs": {"choice": ["yes", "no"]}}, CHOICE),
        ({"response_format": {"type": "grammar", "grammar": "start: A"}}, Format(grammar="start: A")),
        ({"structured_outputs": {"grammar": "start: A"}}, Format(grammar="start: A")),
        ({"structured_outputs": {"regex": "a+", "json": None}}, Format(regex="a+")),
        ({"structured_outputs": {"json": {"type": "object"}}}, Format(json_schema='{"type":"object"}')),
        ({"structured_outputs": {"json": "{}"}}, Format(json_schema="{}")),
        ({"structured_outputs": {"json_object": True}}, Format(json_object=True)),
    ],
)
def test_choices_and_grammars_are_read_in_both_spellings(body: dict[str, Any], wanted: Format) -> None:
    assert read(**body).request.response_format == wanted


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


def test_pictures_and_recordings_keep_their_place_among_the_text() -> None:
    content = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXELS}", "detail": "low"}},
        {"type": "input_audio", "input_audio": {"data": PIXELS, "format": "wav"}},
    ]
    message = read(messages=[{"role": "user", "content": content}]).request.messages[0]
    assert [part.WhichOneof("kind") for part in message.parts] == ["text", "image", "audio"]
    assert message.parts[1].image == b"pixels"


def test_a_picture_elsewhere_is_never_fetched_but_left_for_a_provider() -> None:
    content = [{"type": "image_url", "image_url": {"url": "http://169.254.169.254/"}}]
    message = read(messages=[{"role": "user", "content": content}]).request.messages[0]
    assert (message.content, list(message.parts)) == ("[image_url]", [])


@pytest.mark.parametrize(
    ("body", "told"),
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
        ({"response_format": {"type": "choice", "choice": [1]}}, "response_format.choice[0]: a string, got 1"),
        ({"response_format": {"type": "grammar"}}, "response_format.grammar: a string, got null"),
        (
            {"structured_outputs": {}},
            "structured_outputs: one of json, json_object, regex, choice, grammar, alone, got n",
        ),
        (
            {"structured_outputs": {"regex": "a", "choice": ["a"]}},
            "structured_outputs.regex: one of json, json_object, regex, choice, grammar, alone, got regex and choice",
        ),
        (
            {"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
            "structured_outputs.regex: one of json, json_object, regex, choice, grammar, alone, got regex beside",
        ),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema: an object, got null"),
        ({"hedgerow": {"budget": 3}}, "hedgerow.budget: one of budget_ms,"),
        ({"hedgerow": {"cache": "maybe"}}, "hedgerow.cache: one of bypass, exact, use, got 'maybe'"),
        ({"modalities": ["text", 7]}, "modalities[1]: a string, got 7"),
    ],
)
def test_a_refusal_names_the_field_the_limit_and_the_value(body: dict[str, Any], told: str) -> None:
    assert refused(**body).startswith(told)


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


def test_hedgerows_own_options_come_in_the_body_or_as_headers_which_are_stronger() -> None:
    own = {"budget_ms": 800, "priority": "realtime", "cache": "bypass", "tier": "quality", "max_cost_usd": 0.5}
    request = read(model="auto", hedgerow=own).request
    assert (request.budget_ms, request.realtime, request.cache.bypass) == (800, True, True)
    assert (request.tier, request.max_cost_usd) == (pb.TIER_QUALITY, 0.5)
    headers = {"x-hedgerow-budget-ms": "300", "x-hedgerow-first-token-ms": "100", "x-hedgerow-silence-ms": "50"}
    order = read(headers, hedgerow=own)
    assert (order.request.budget_ms, order.request.first_token_budget_ms, order.silence_ms) == (300, 100, 50)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("budget-ms", "soon", "a whole number, got 'soon'"),
        ("findings", "yes", "true or false, got 'yes'"),
        ("cache-allow", "sampled, all", "some of sampled, time_bound, personal, got all"),
        ("priority", "high", "one of realtime, normal, got 'high'"),
        ("tier", "best", "one of auto, fast, balanced, quality, got 'best'"),
        ("hit-chars-per-s", "-1", "0 to 1000000, got -1.0"),
    ],
)
def test_a_header_is_refused_under_its_own_name(name: str, value: str, told: str) -> None:
    assert refused({f"x-hedgerow-{name}": value}) == f"x-hedgerow-{name}: {told}"


def test_a_header_takes_the_place_of_a_list_and_of_a_flag_in_the_body() -> None:
    own = {"cache_allow": ["personal"], "findings": True, "end_user": "anna"}
    headers = {"x-hedgerow-cache-allow": "sampled, time_bound", "x-hedgerow-findings": "false"}
    order = read({**headers, "x-hedgerow-end-user": "bert"}, hedgerow=own)
    assert list(order.request.cache.allow) == [pb.QUESTION_KIND_SAMPLED, pb.QUESTION_KIND_TIME_BOUND]
    assert (list(order.request.end_user), order.findings) == (["bert"], False)


def test_a_header_that_is_no_option_is_refused_as_a_field_of_the_body_is() -> None:
    told = refused({"x-hedgerow-budgetms": "300"})
    assert told.startswith("x-hedgerow-budgetms: one of x-hedgerow-budget-ms, x-hedgerow-cache, ")
    assert read({"x-hedgerow-tenant": "acme", "x-hedgerow-trace-id": "4b", "x-other": "1"}).model == "m"


def test_a_clients_repeats_are_told() -> None:
    assert read({"x-stainless-retry-count": "2"}).request.attempt == 2


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"a": NaN}', b"\xff", b'{"a":1,"a":2}', b"[" * 100_000])
def test_a_body_that_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"^body: "):
        parse(body)


def test_tools_of_the_mesh_come_by_name_or_with_what_to_do_with_them() -> None:
    given = ["search_manual", {"name": "weather", "arguments": {"city": "Oslo"}}, {"name": "news", "offered": True}]
    own = {"mesh_tools": [*given, {"source": "files"}], "tool_steps": 1, "tool_calls": 3}
    request = read(hedgerow=own).request
    assert list(request.mesh_tools) == [
        pb.MeshTool(name="search_manual"),
        pb.MeshTool(name="weather", arguments='{"city": "Oslo"}'),
        pb.MeshTool(name="news", offered=True),
        pb.MeshTool(source="files"),
    ]
    assert request.tool_limits == pb.ToolLimits(steps=1, calls=3)
    headers = {"x-hedgerow-mesh-tools": "weather, news", "x-hedgerow-tool-calls": "1"}
    asked = read(headers, hedgerow=own).request
    assert [tool.name for tool in asked.mesh_tools] == ["weather", "news"]
    assert asked.tool_limits.calls == 1


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ([3], "hedgerow.mesh_tools[0]: a name or an object, got neither"),
        ([{"name": "a", "url": "http://a"}], "hedgerow.mesh_tools[0].url: one of name, source, arguments, offered"),
        ([{"name": "a", "source": "b"}], "hedgerow.mesh_tools[0].source: none beside a name, got 'b'"),
        ([{"name": "a", "arguments": "{}"}], "hedgerow.mesh_tools[0].arguments: an object, got '{}'"),
        ("weather", "hedgerow.mesh_tools: an array, got 'weather'"),
    ],
)
def test_what_is_no_tool_of_the_mesh_is_refused_by_its_place(given: Any, problem: str) -> None:
    assert problem in refused(hedgerow={"mesh_tools": given})


def test_a_guard_is_asked_for_by_what_it_looks_for() -> None:
    asked = read({"x-hedgerow-guard": "injection=refuse, personal=mask"}, hedgerow={"guard": "secrets=refuse"})
    mask, refuse = pb.GUARD_ACTION_MASK, pb.GUARD_ACTION_REFUSE
    assert asked.request.guard == pb.GuardPolicy(injection=refuse, personal=mask, secrets=refuse)
    assert not read().request.HasField("guard")
    assert refused(hedgerow={"guard": "personal"}).startswith("hedgerow.guard: mask or refuse for some of injection,")


@pytest.mark.parametrize(("own", "repair"), [({}, True), ({"repair": False}, False), ({"repair": True}, True)])
def test_an_answer_in_one_piece_is_repaired_unless_it_must_not_be(own: dict[str, bool], repair: bool) -> None:
    order = read(hedgerow=own)
    settle_replacing(order, checks=True)
    assert order.request.repair == repair


@pytest.mark.parametrize("headers", [{"x-hedgerow-repair": "true"}, {"x-hedgerow-cascade-at-once": "true"}])
def test_of_a_stream_nothing_can_be_replaced(headers: dict[str, str]) -> None:
    order = read({**headers, "x-hedgerow-cascade": "rules"}, stream=True)
    with pytest.raises(InvalidInput, match="none beside stream"):
        settle_replacing(order, checks=True)


def test_a_stream_is_not_repaired_by_itself() -> None:
    order = read(stream=True)
    settle_replacing(order, checks=True)
    assert not order.request.repair


def test_at_once_is_for_a_cascade() -> None:
    with pytest.raises(InvalidInput, match="with a cascade"):
        settle_replacing(read(hedgerow={"cascade_at_once": True}), checks=True)


def test_a_number_of_5000_digits_is_refused_wherever_it_stands() -> None:
    digits = "1" * 5_000
    assert refused(logit_bias={digits: 1}).startswith("logit_bias.1111111111111111: a token's number")
    assert read({"x-stainless-retry-count": digits}).request.attempt == 1_000
    with pytest.raises(InvalidInput, match="4300 digits"):
        parse(b'{"seed":' + digits.encode() + b"}")


def test_no_more_is_read_of_a_long_array_than_its_limit() -> None:
    tool = {"type": "function", "function": {"name": "t"}}
    assert refused(tools=[tool] * 129) == "tools: at most 128, got more"
    assert refused(stop=["x"] * 9) == "stop: at most 8, got 9"
    given = parse(json.dumps({"model": "m", "messages": ASKED * 3}).encode())
    with pytest.raises(InvalidInput, match="messages: at most 2, got 3"):
        read_chat(given, {}, ["m"], 2)
