"""proto ↔ domain."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.trace import INVALID_SPAN

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from services.llm import __main__ as service
from services.llm import servicer as servicer_module
from services.llm.config import LlmSettings
from services.llm.engine import (
    Chunk,
    Constraint,
    Feature,
    Finish,
    FinishReason,
    Load,
    Message,
    Model,
    Part,
    Progress,
    Request,
    Sampling,
    TokenLogprob,
    Tool,
    ToolCall,
    ToolCallDelta,
    ToolChoice,
    Usage,
)
from services.llm.servicer import LLMServicer
from services.llm.translate import to_request, to_response
from services.runtime.deadline import Deadline
from services.runtime.errors import InvalidInput, NotSupported
from services.runtime.rpc.boundary import Call
from tests.unit.conftest import Beside

HI = chat_pb2.Message(role=chat_pb2.ROLE_USER, content="Hi.")
CALL = Call((), Deadline.never(), INVALID_SPAN)


@pytest.mark.parametrize(
    ("asked", "request_"),
    [
        ({"messages": [HI]}, Request((Message("user", "Hi."),), Sampling(), None)),
        (
            {"sampling": {"temperature": 0, "top_p": 0, "max_tokens": 0, "seed": 0, "stop": ["a"]}},
            Request((), Sampling(0, 0, 0, ("a",), 0)),
        ),
        ({"prefix": " The ", "cache_salt": "0f"}, Request((), prefix=" The ", cache_salt="0f")),
        ({"tool_choice": {}}, Request((), tool_choice=ToolChoice("auto"))),
        ({"tool_choice": {"mode": "TOOL_MODE_NONE"}}, Request((), tool_choice=ToolChoice("none"))),
        ({"tool_choice": {"mode": "TOOL_MODE_REQUIRED"}}, Request((), tool_choice=ToolChoice("required"))),
    ],
    ids=["what is not set", "zero is set", "the beginning of an answer and the salt", "auto", "none", "required"],
)
def test_a_request_reaches_the_engine_unchanged(asked: dict[str, Any], request_: Request) -> None:
    assert to_request(llm_pb2.GenerateRequest(**asked)) == request_


@pytest.mark.parametrize(
    ("given", "constraint"),
    [
        (chat_pb2.ResponseFormat(regex="a+"), Constraint("regex", "a+")),
        (chat_pb2.ResponseFormat(json_schema="{}"), Constraint("json_schema", "{}")),
        (chat_pb2.ResponseFormat(json_object=True), Constraint("json_object")),
        (chat_pb2.ResponseFormat(choice=chat_pb2.Choice(values=["é", '"'])), Constraint("choice", '["é", "\\""]')),
        (chat_pb2.ResponseFormat(grammar="start: A"), Constraint("grammar", "start: A")),
        (chat_pb2.ResponseFormat(json_object=False), None),
        (chat_pb2.ResponseFormat(), None),
    ],
)
def test_at_most_one_constraint_is_taken(given: chat_pb2.ResponseFormat, constraint: Constraint | None) -> None:
    assert to_request(llm_pb2.GenerateRequest(response_format=given)).constraint == constraint


def test_an_unknown_role_is_refused_by_its_path() -> None:
    asked = llm_pb2.GenerateRequest(messages=[chat_pb2.Message(content="Hello.")])
    with pytest.raises(InvalidInput, match=r"messages\[0\].role: system, user, assistant or tool, got 0"):
        to_request(asked)


def test_the_end_carries_reason_usage_and_queue_time() -> None:
    chunk = Chunk("!", 1, Finish(FinishReason.LENGTH, Usage(1, 2, 3, 4, 5), queue_ms=0.0))
    usage = chat_pb2.Usage(
        prompt_tokens=1, completion_tokens=2, cached_prompt_tokens=3, drafted_tokens=4, accepted_tokens=5
    )
    finish = llm_pb2.Finish(reason=chat_pb2.FINISH_REASON_LENGTH, usage=usage, queue_ms=0.0, billed_cached_tokens=3)
    assert to_response(chunk) == llm_pb2.GenerateResponse(text="!", tokens=1, finish=finish)
    assert not to_response(Chunk("a", 1)).HasField("finish")


def test_tools_and_their_results_reach_the_engine_unchanged() -> None:
    call = chat_pb2.ToolCall(id="call_1", name="weather", arguments='{"city": "Oslo"}')
    asked = llm_pb2.GenerateRequest(
        messages=[
            chat_pb2.Message(role=chat_pb2.ROLE_ASSISTANT, tool_calls=[call]),
            chat_pb2.Message(role=chat_pb2.ROLE_TOOL, tool_call_id="call_1", content="rain"),
        ],
        tools=[chat_pb2.Tool(name="weather", description="Tells it.", parameters="{}", strict=True)],
        tool_choice=chat_pb2.ToolChoice(name="weather"),
        parallel_tool_calls=False,
    )
    request = to_request(asked)
    assert request.messages == (
        Message("assistant", tool_calls=(ToolCall("call_1", "weather", '{"city": "Oslo"}'),)),
        Message("tool", "rain", tool_call_id="call_1"),
    )
    assert request.tools == (Tool("weather", "Tells it.", "{}", True),)
    assert (request.tool_choice, request.parallel_tool_calls) == (ToolChoice("named", "weather"), False)


def test_parts_that_are_all_text_are_content_and_others_stay_parts() -> None:
    text, image = chat_pb2.Part(text="What is this?"), chat_pb2.Part(image=b"png")
    messages = [chat_pb2.Message(role=chat_pb2.ROLE_USER, parts=parts) for parts in ([text, text], [text, image])]
    said, shown = to_request(llm_pb2.GenerateRequest(messages=messages)).messages
    assert said == Message("user", "What is this?What is this?")
    assert shown == Message("user", parts=(Part("text", "What is this?"), Part("image", data=b"png")))


def test_how_tokens_are_drawn_is_taken_over() -> None:
    plain: dict[str, Any] = {
        "frequency_penalty": 0.5,
        "presence_penalty": -0.5,
        "top_logprobs": 0,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.5,
        "min_tokens": 0,
        "ignore_eos": True,
    }
    bias = [chat_pb2.LogitBias(token=7, bias=-100)]
    sampling = chat_pb2.Sampling(**plain, logit_bias=bias, stop_token_ids=[9])
    wanted = to_request(llm_pb2.GenerateRequest(sampling=sampling)).sampling
    assert wanted == Sampling(**plain, logit_bias=((7, -100.0),), stop_token_ids=(9,))
    assert to_request(llm_pb2.GenerateRequest()).sampling == Sampling()


def test_calls_thoughts_and_log_probabilities_reach_the_caller() -> None:
    chunk = Chunk(
        "",
        3,
        tool_calls=(ToolCallDelta(0, "call_1", "weather", "{"),),
        reasoning="Hm.",
        logprobs=(TokenLogprob("a", b"a", -0.5, (TokenLogprob("b", b"b", -1.5),)),),
    )
    likely = chat_pb2.TokenLogprob(token="b", bytes=b"b", logprob=-1.5)
    assert to_response(chunk) == llm_pb2.GenerateResponse(
        tokens=3,
        tool_calls=[chat_pb2.ToolCallDelta(index=0, id="call_1", name="weather", arguments="{")],
        reasoning="Hm.",
        logprobs=[chat_pb2.TokenLogprob(token="a", bytes=b"a", logprob=-0.5, top=[likely])],
    )


ONE = chat_pb2.ResponseFormat(choice=chat_pb2.Choice(values=["a"]))
GRAMMAR = chat_pb2.ResponseFormat(grammar="start: A")
SEEN = chat_pb2.Message(role=chat_pb2.ROLE_USER, parts=[chat_pb2.Part(text="Hi."), chat_pb2.Part(image=b"png")])


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"tools": [chat_pb2.Tool(name="a")]}, "tools"),
        ({"sampling": {"top_logprobs": 0}}, "sampling.top_logprobs"),
        ({"sampling": {"logit_bias": [chat_pb2.LogitBias(bias=1)]}}, "sampling.logit_bias"),
        ({"sampling": {"top_k": 0}}, "sampling.top_k"),
        ({"sampling": {"min_p": 0}}, "sampling.min_p"),
        ({"sampling": {"repetition_penalty": 1}}, "sampling.repetition_penalty"),
        ({"sampling": {"min_tokens": 0}}, "sampling.min_tokens"),
        ({"sampling": {"ignore_eos": True}}, "sampling.ignore_eos"),
        ({"sampling": {"stop_token_ids": [0]}}, "sampling.stop_token_ids"),
        ({"messages": [SEEN]}, "messages[0].parts[1].image"),
        ({"response_format": ONE}, "response_format.choice"),
        ({"response_format": GRAMMAR}, "response_format.grammar"),
    ],
)
async def test_features_that_an_engine_lacks_are_refused_by_name_before_the_call(
    asked: dict[str, Any], field: str
) -> None:
    request = llm_pb2.GenerateRequest(**{"messages": [HI], **asked})
    with pytest.raises(NotSupported) as caught:
        await anext(LLMServicer(_Caching(False)).Generate(request, CALL))  # type: ignore[arg-type]
    assert caught.value.message == f"{field}: not supported by m"


@pytest.mark.parametrize(("wanted", "feature"), [(ONE, Feature.CHOICE), (GRAMMAR, Feature.GRAMMAR)])
async def test_a_form_that_only_some_engines_have_reaches_those(
    wanted: chat_pb2.ResponseFormat, feature: Feature
) -> None:
    asked = llm_pb2.GenerateRequest(messages=[HI], response_format=wanted)
    servicer = LLMServicer(_Caching(False, frozenset({feature})))  # type: ignore[arg-type]
    assert [reply.text async for reply in servicer.Generate(asked, CALL)] == ["Hi."]


async def test_the_features_of_a_model_are_reported() -> None:
    servicer = LLMServicer(_Caching(False, frozenset({Feature.TOOLS, Feature.AUDIO})))  # type: ignore[arg-type]
    reply = await servicer.GetModel(llm_pb2.GetModelRequest(), CALL)
    assert list(reply.features) == [llm_pb2.FEATURE_TOOLS, llm_pb2.FEATURE_AUDIO]


@pytest.mark.parametrize(("salts", "salt", "cached"), [(False, "a", 0), (False, "", 64), (True, "a", 64)])
async def test_cached_tokens_are_reported_only_where_they_cannot_be_other_tenants_prompts(
    salts: bool, salt: str, cached: int
) -> None:
    asked = llm_pb2.GenerateRequest(
        messages=[chat_pb2.Message(role=chat_pb2.ROLE_USER, content="Hi.")], cache_salt=salt
    )
    servicer = LLMServicer(_Caching(salts))  # type: ignore[arg-type]
    replies = [reply async for reply in servicer.Generate(asked, CALL)]
    assert (replies[-1].finish.usage.cached_prompt_tokens, replies[-1].finish.usage.prompt_tokens) == (cached, 100)
    assert replies[-1].finish.billed_cached_tokens == 64, "the cost follows what the provider bills"


@pytest.mark.parametrize(("messages", "schemas", "large"), [(10, 1, False), (2_000, 1, True), (10, 10, True)])
async def test_a_conversation_of_many_messages_or_large_tools_is_translated_beside_the_event_loop(
    beside: Beside, messages: int, schemas: int, large: bool
) -> None:
    translated = beside(servicer_module, "to_request")
    schema = json.dumps({"title": "t" * 7_000})
    tools = [chat_pb2.Tool(name=f"tool_{number}", parameters=schema) for number in range(schemas)]
    asked = llm_pb2.GenerateRequest(messages=[HI] * messages, tools=tools)
    servicer = LLMServicer(_Caching(False, frozenset({Feature.TOOLS})))  # type: ignore[arg-type]
    assert [reply.text async for reply in servicer.Generate(asked, CALL)] == ["Hi."]
    assert translated == [large]


class _Caching:
    """An engine that has 64 of a prompt's 100 tokens in its cache already."""

    def __init__(self, salts: bool, features: frozenset[Feature] = frozenset()):
        self._salts, self._features = salts, features

    def describe(self) -> Model:
        return Model("m", "openai", 0, 10, "", False, self._salts, self._features)

    def load(self) -> Load:
        return Load(0, 0)

    async def generate(self, request: Request, deadline: Deadline) -> AsyncGenerator[Chunk, None]:
        yield Chunk("Hi.", 1, Finish(FinishReason.STOP, Usage(100, 1, 64)))


@given(st.integers(-999_999, 999_999), st.integers(0, 8))
def test_a_number_reaches_the_engine_as_it_was_written(digits: int, places: int) -> None:
    number = float(f"{digits}e-{places}")
    sampling = chat_pb2.Sampling(temperature=number, logit_bias=[chat_pb2.LogitBias(token=1, bias=number)])
    sampled = to_request(llm_pb2.GenerateRequest(sampling=sampling)).sampling
    assert (sampled.temperature, sampled.logit_bias) == (number, ((1, number),))


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), 3.4028234663852886e38, 1e-45, 0.0])
def test_a_number_at_the_end_of_the_contracts_range_is_what_it_is(number: float) -> None:
    wanted = chat_pb2.Sampling(temperature=number)
    sampled = to_request(llm_pb2.GenerateRequest(sampling=wanted)).sampling.temperature
    assert chat_pb2.Sampling(temperature=sampled) == wanted


class WithoutTemplate:
    """Refuses every question."""

    closed = False

    async def warm_up(self, progress: Progress) -> None:
        raise ExceptionGroup("", [InvalidInput("messages", "what the model's chat template takes (none)", "others")])

    async def close(self) -> None:
        self.closed = True


async def test_a_model_that_answers_no_question_ends_the_start_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = WithoutTemplate()

    async def start(settings: LlmSettings, progress: Progress) -> WithoutTemplate:
        return engine

    monkeypatch.setattr("services.llm.engines.start", start)
    with pytest.raises(SystemExit) as ended:
        await service.assemble(LlmSettings()).__aenter__()
    assert (ended.value.code, engine.closed) == (2, True)
    assert "the model answers no question: messages: what the model's chat template takes (none)" in caplog.text
