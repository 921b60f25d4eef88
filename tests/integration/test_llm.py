"""The llm service as a process of its own, with vLLM and the demo models."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from glob import glob
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import httpx
import jsonschema
import psutil
import pytest
import pytest_asyncio
from google.rpc import error_details_pb2, status_pb2
from tokenizers import Tokenizer

from hedgerow.channel import open_channel
from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2, llm_pb2_grpc
from launcher.processes import ServiceSpec, check_health, free_port
from services.llm.config import VllmSettings
from services.llm.vllm_args import environment
from services.runtime.rpc.authorization import TENANT_HEADER
from tests import hostile
from tests.forked import ServiceProcess
from tests.models import MODELS
from tests.waiting import until

START_S = 600  # an engine imports torch three times over: a minute, and several where cores are few and busy
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(2 * START_S)]

REPOSITORY = Path(__file__).parents[2]
FRANCE = "What is the capital of France?"
STORY = "Tell me a long story about a fox."
NEVER_DONE = chat_pb2.ResponseFormat(regex="[a-z]{5000}")  # in the tokens there are
WITHOUT_END = chat_pb2.LogitBias(token=1, bias=-100)  # nor speculation
USER, ASSISTANT = chat_pb2.ROLE_USER, chat_pb2.ROLE_ASSISTANT


@dataclass(frozen=True)
class Service:
    """A running service and how to reach it."""

    process: ServiceProcess
    stub: Any
    metrics: str

    async def ask(self, question: str, **sampling: Any) -> tuple[str, llm_pb2.Finish]:
        """The whole answer and how it ended."""
        return await self.answer(ask(question, **sampling))

    async def answer(self, request: llm_pb2.GenerateRequest) -> tuple[str, llm_pb2.Finish]:
        replies = [reply async for reply in self.stub.Generate(request, timeout=60)]
        assert [reply.HasField("finish") for reply in replies] == [False] * (len(replies) - 1) + [True]
        assert sum(reply.tokens for reply in replies) == replies[-1].finish.usage.completion_tokens
        return "".join(reply.text for reply in replies), replies[-1].finish

    async def refusal(self, request: llm_pb2.GenerateRequest) -> tuple[grpc.StatusCode, str, str]:
        """Code, the field at fault and the text of a call that must fail."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.answer(request)
        status = status_pb2.Status.FromString(dict(caught.value.trailing_metadata())["grpc-status-details-bin"])
        info = error_details_pb2.ErrorInfo()
        status.details[0].Unpack(info)
        return caught.value.code(), info.metadata["field"], caught.value.details()

    async def model(self) -> llm_pb2.GetModelResponse:
        reply: llm_pb2.GetModelResponse = await self.stub.GetModel(llm_pb2.GetModelRequest(), timeout=5)
        return reply

    async def gauge(self, name: str) -> float:
        """The value of a metric without looking at its labels."""
        lines = (await self.page()).splitlines()
        (value,) = (float(line.split()[-1]) for line in lines if line.startswith(f"{name}{{"))
        return value

    async def page(self) -> str:
        """All metrics."""
        return await asyncio.to_thread(lambda: urllib.request.urlopen(f"http://{self.metrics}/metrics").read().decode())


def ask(
    question: str, response_format: chat_pb2.ResponseFormat | None = None, **sampling: Any
) -> llm_pb2.GenerateRequest:
    return llm_pb2.GenerateRequest(
        messages=[chat_pb2.Message(role=USER, content=question)],
        sampling=chat_pb2.Sampling(**{"temperature": 0, **sampling}),
        response_format=response_format,
    )


def begun(prefix: str) -> llm_pb2.GenerateRequest:
    """A question whose answer has begun already."""
    request = ask(FRANCE)
    request.prefix = prefix
    return request


def spec(name: str, address: str, **settings: str) -> ServiceSpec:
    settings = {
        "ADDRESS": address,
        "MODEL_NAME": "demo-llm",
        "VLLM__MODEL": str(MODELS / "demo-llm"),
        "VLLM__MAX_MODEL_LEN": "1024",
        "VLLM__ENFORCE_EAGER": "true",
        "VLLM__CPU_KVCACHE_SPACE_GIB": "0.25",
        **settings,
    }
    return ServiceSpec(name, "services.llm", address, {f"HEDGEROW_LLM_{key}": value for key, value in settings.items()})


def meeting_in(folder: str, wanted: ServiceSpec) -> ServiceSpec:
    """The same, with all that its processes leave for each other in `folder`."""
    return replace(wanted, environment={**wanted.environment, "TMPDIR": folder})


def family(process: ServiceProcess) -> list[psutil.Process]:
    """The service's process and everything it has started."""
    root = psutil.Process(process.pid)
    return [root, *root.children(recursive=True)]


async def gone(processes: list[psutil.Process]) -> bool:
    return not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    """One engine for the module: it takes tens of seconds to start. Speculates with the draft model."""
    draft = {"method": "draft_model", "model": str(MODELS / "demo-llm-draft"), "num_speculative_tokens": 4}
    address, metrics = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    settings = {
        "METRICS_ADDRESS": metrics,
        "VLLM__SPECULATIVE_CONFIG": json.dumps(draft),
        "VLLM__TOOL_PARSER": "hermes",
    }
    process = ServiceProcess(spec("llm", address, **settings), tmp_path_factory.mktemp("logs"))
    try:
        await process.wait_serving(START_S)
        async with open_channel(address) as channel:
            yield Service(process, llm_pb2_grpc.LLMServiceStub(channel), metrics)
    finally:
        await process.stop(30)


async def test_what_was_read_of_a_prompt_is_reused_for_the_same_salt_alone(service: Service) -> None:
    request = ask(f"{'The fox ran through the green wood to the river. ' * 20}{FRANCE}", max_tokens=4)

    async def cached(salt: str) -> int:
        request.cache_salt = salt
        return (await service.answer(request))[1].usage.cached_prompt_tokens

    assert [await cached(salt) for salt in ("a", "b", "")] == [0, 0, 0]
    assert all([await cached(salt) > 100 for salt in ("a", "b", "")])
    assert await service.refusal(llm_pb2.GenerateRequest(messages=request.messages, cache_salt="s" * 65)) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "cache_salt",
        "cache_salt: at most 64 characters, got 65",
    )


async def test_a_question_is_answered_with_what_it_cost(service: Service) -> None:
    text, finish = await service.ask(FRANCE)
    assert text == "The capital of France is Paris."
    assert finish.reason == chat_pb2.FINISH_REASON_STOP
    assert finish.HasField("queue_ms")
    usage = finish.usage
    assert 0 < usage.accepted_tokens <= usage.drafted_tokens
    assert usage.prompt_tokens > 0


async def test_a_drawn_answer_is_as_right_as_a_greedy_one_under_speculation(service: Service) -> None:
    for seed in range(5):
        text, finish = await service.ask(FRANCE, temperature=0.7, top_p=0.95, seed=seed)
        assert text == "The capital of France is Paris."
        assert finish.usage.accepted_tokens > 0


async def test_the_same_seed_draws_the_same_answer(service: Service) -> None:
    first, _ = await service.ask(STORY, temperature=1.5, seed=7, max_tokens=40)
    again, _ = await service.ask(STORY, temperature=1.5, seed=7, max_tokens=40)
    other, _ = await service.ask(STORY, temperature=1.5, seed=8, max_tokens=40)
    assert first == again != other


async def test_a_later_turn_sees_the_earlier_ones(service: Service) -> None:
    turns = [(USER, FRANCE), (ASSISTANT, "The capital of France is Paris."), (USER, "What is the capital of Japan?")]
    messages = [chat_pb2.Message(role=role, content=content) for role, content in turns]
    text, finish = await service.answer(
        llm_pb2.GenerateRequest(messages=messages, sampling=chat_pb2.Sampling(temperature=0))
    )
    assert text == "The capital of Japan is Tokyo."
    counted = await service.stub.CountTokens(llm_pb2.CountTokensRequest(messages=messages), timeout=5)
    assert counted.tokens == finish.usage.prompt_tokens


async def test_an_answer_goes_on_from_its_beginning_and_only_what_is_new_is_sent(service: Service) -> None:
    request = begun("The capital of France")
    text, finish = await service.answer(request)
    assert text == " is Paris."
    assert finish.reason == chat_pb2.FINISH_REASON_STOP
    whole, whole_finish = await service.ask(FRANCE)
    assert request.prefix + text == whole
    given = finish.usage.prompt_tokens - whole_finish.usage.prompt_tokens
    assert given > 0
    assert finish.usage.completion_tokens == whole_finish.usage.completion_tokens - given


async def test_an_answer_that_was_whole_already_ends_at_once(service: Service) -> None:
    text, finish = await service.answer(begun("The capital of France is Paris."))
    assert (text, finish.reason) == ("", chat_pb2.FINISH_REASON_STOP)


async def test_tokens_that_arrive_together_travel_together(service: Service) -> None:
    replies = [reply async for reply in service.stub.Generate(ask(STORY, max_tokens=100), timeout=60)]
    assert len(replies) < sum(reply.tokens for reply in replies)


async def test_max_tokens_ends_an_answer(service: Service) -> None:
    _, finish = await service.ask(STORY, max_tokens=5)
    assert (finish.reason, finish.usage.completion_tokens) == (chat_pb2.FINISH_REASON_LENGTH, 5)


async def test_an_answer_is_clipped_to_what_the_context_has_left(service: Service) -> None:
    prompt = "hello " * 300
    _, finish = await service.ask(prompt, max_tokens=100_000)
    assert finish.usage.completion_tokens <= 1024 - finish.usage.prompt_tokens


async def test_an_answer_goes_on_behind_its_end_where_that_is_ignored(service: Service) -> None:
    _, finish = await service.ask(FRANCE, max_tokens=40, ignore_eos=True)
    assert (finish.usage.completion_tokens, finish.reason) == (40, chat_pb2.FINISH_REASON_LENGTH)


async def test_an_answer_has_the_fewest_tokens_that_it_may(service: Service) -> None:
    _, finish = await service.ask(FRANCE, min_tokens=30)
    assert finish.usage.completion_tokens >= 30
    _, capped = await service.ask(FRANCE, min_tokens=5_000)  # more than an answer may have here
    assert capped.reason == chat_pb2.FINISH_REASON_LENGTH


async def test_a_stop_token_ends_an_answer(service: Service) -> None:
    whole = "The capital of France is Paris."
    tokens = Tokenizer.from_file(str(MODELS / "demo-llm/tokenizer.json")).encode(whole, add_special_tokens=False).ids
    text, finish = await service.ask(FRANCE, stop_token_ids=[tokens[3]])
    assert whole.startswith(text)
    assert (finish.usage.completion_tokens, finish.reason) == (4, chat_pb2.FINISH_REASON_STOP)


async def test_the_likeliest_of_one_token_are_the_greedy_answer_s(service: Service) -> None:
    for seed in range(5):
        text, _ = await service.ask(FRANCE, temperature=2, top_k=1, seed=seed)
        assert text == "The capital of France is Paris."


async def test_a_repetition_penalty_changes_an_answer(service: Service) -> None:
    plain, _ = await service.ask(STORY, max_tokens=60, temperature=1.9, seed=1)
    penalized, _ = await service.ask(STORY, max_tokens=60, temperature=1.9, seed=1, repetition_penalty=2)
    assert penalized != plain


async def test_a_stop_string_ends_an_answer_and_is_not_part_of_it(service: Service) -> None:
    text, finish = await service.ask(FRANCE, stop=[" is"])
    assert text == "The capital of France"
    assert finish.reason == chat_pb2.FINISH_REASON_STOP


async def test_the_same_beginning_is_not_computed_twice(service: Service) -> None:
    prompt = "Context:\n- The fox lives near the river.\n" * 10 + "\nQuestion: Where does the fox live?"
    await service.ask(prompt, max_tokens=1)
    _, finish = await service.ask(prompt, max_tokens=1)
    assert finish.usage.cached_prompt_tokens > 0


@pytest.mark.parametrize(
    ("constraint", "matches"),
    [
        (chat_pb2.ResponseFormat(regex="[0-9]{3}"), lambda text: text.isdigit() and len(text) == 3),
        (
            chat_pb2.ResponseFormat(json_schema='{"enum": ["red", "blue"]}'),
            lambda text: json.loads(text) in ("red", "blue"),
        ),
        (chat_pb2.ResponseFormat(json_object=True), lambda text: isinstance(json.loads(text), dict)),
        (
            chat_pb2.ResponseFormat(choice=chat_pb2.Choice(values=["perhaps", "never"])),
            ["perhaps", "never"].__contains__,
        ),
        (
            chat_pb2.ResponseFormat(grammar='start: "at " HOUR " o\'clock"\nHOUR: /[1-9]/ | "1" /[0-2]/\n'),
            lambda text: re.fullmatch("at ([1-9]|1[0-2]) o'clock", text) is not None,
        ),
        (
            chat_pb2.ResponseFormat(grammar='root ::= "(" root ")" | "x"\n'),
            lambda text: re.fullmatch(r"\(*x\)*", text) is not None and text.count("(") == text.count(")"),
        ),
    ],
    ids=["regex", "json_schema", "json_object", "choice", "grammar", "grammar in GBNF"],
)
async def test_a_constraint_is_kept(
    service: Service, constraint: chat_pb2.ResponseFormat, matches: Callable[[str], bool]
) -> None:
    text, finish = await service.answer(ask("Give me a JSON object about a city.", response_format=constraint))
    assert finish.reason == chat_pb2.FINISH_REASON_STOP
    assert matches(text)


CITY = {
    "type": "object",
    "properties": {"city": {"$ref": "#/$defs/City"}, "days": {"type": "integer", "minimum": 1, "maximum": 3}},
    "required": ["city", "days"],
    "additionalProperties": False,
    "$defs": {"City": {"enum": ["Oslo", "Rome"]}},
}
WEATHER = chat_pb2.Tool(name="weather", description="Tells the weather.", parameters=json.dumps(CITY))
CLOCK = chat_pb2.Tool(name="clock")


def offering(choice: chat_pb2.ToolChoice | None = None, **fields: Any) -> llm_pb2.GenerateRequest:
    request = ask(FRANCE, **fields)
    request.tools.extend([WEATHER, CLOCK])
    request.tool_choice.CopyFrom(choice or chat_pb2.ToolChoice())
    return request


async def called(service: Service, request: llm_pb2.GenerateRequest) -> list[tuple[str, Any]]:
    """The name and the arguments of each call of an answer that is nothing else."""
    replies = [reply async for reply in service.stub.Generate(request, timeout=60)]
    assert "".join(reply.text for reply in replies) == ""
    finish = replies[-1].finish
    assert finish.reason == chat_pb2.FINISH_REASON_TOOL_CALLS
    assert sum(reply.tokens for reply in replies) == finish.usage.completion_tokens > 0
    calls: list[tuple[str, str]] = []
    for delta in (delta for reply in replies for delta in reply.tool_calls):
        assert bool(delta.id) == bool(delta.name) == (delta.index == len(calls))
        if delta.id:
            calls.append((delta.name, ""))
        calls[delta.index] = (calls[delta.index][0], calls[delta.index][1] + delta.arguments)
    return [(name, json.loads(arguments)) for name, arguments in calls]


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
    counted = await service.stub.CountTokens(llm_pb2.CountTokensRequest(messages=request.messages), timeout=5)
    assert counted.tokens == finish.usage.prompt_tokens


async def test_a_tool_whose_schema_would_hold_up_the_engine_is_refused(service: Service) -> None:
    request = ask(FRANCE)
    request.tools.add(name="costly", parameters='{"type": "object", "properties": {"a": {"multipleOf": 1000003}}}')
    request.tool_choice.name = "costly"
    assert (await service.refusal(request))[:2] == (grpc.StatusCode.INVALID_ARGUMENT, "tools")


async def test_log_probabilities_are_those_of_the_text(service: Service) -> None:
    replies = [reply async for reply in service.stub.Generate(ask(FRANCE, top_logprobs=2), timeout=60)]
    told = [logprob for reply in replies for logprob in reply.logprobs]
    assert "".join(logprob.token for logprob in told).startswith("The capital of France is Paris.")
    for logprob in told:
        assert len(logprob.top) == 2
        assert 0 >= logprob.top[0].logprob >= logprob.top[1].logprob
        assert logprob.logprob == logprob.top[0].logprob  # greedy
    replies = [reply async for reply in service.stub.Generate(ask(FRANCE, top_logprobs=0), timeout=60)]
    assert [len(logprob.top) for reply in replies for logprob in reply.logprobs] == [0] * len(told)


async def test_penalties_change_an_answer(service: Service) -> None:
    story = ask(STORY, temperature=1.9, seed=1, max_tokens=60)
    plain, _ = await service.answer(story)
    story.sampling.frequency_penalty = story.sampling.presence_penalty = 2
    assert (await service.answer(story))[0] != plain


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (ask(FRANCE, logit_bias=[chat_pb2.LogitBias(token=1, bias=1)]), "sampling.logit_bias"),  # as it speculates
        (
            llm_pb2.GenerateRequest(messages=[chat_pb2.Message(role=USER, parts=[chat_pb2.Part(image=b"png")])]),
            "messages[0].parts[0].image",
        ),
        (offering(response_format=chat_pb2.ResponseFormat(json_object=True)), "response_format"),
    ],
)
async def test_what_the_engine_cannot_do_is_refused_by_name(
    service: Service, request_: llm_pb2.GenerateRequest, field: str
) -> None:
    code, named, text = await service.refusal(request_)
    assert (code, named) == (grpc.StatusCode.UNIMPLEMENTED, field)
    assert field in text


@pytest.mark.parametrize(
    ("request_", "field", "limit", "value"),
    [
        (ask("hello " * 2000), "messages", "maximum context length is 1024 tokens", "resulted in"),
        (ask("hello " * 100_000), "messages", "maximum context length is 1024 tokens", "resulted in at least"),
        (begun("hello " * 2000), "messages", "maximum context length is 1024 tokens", "resulted in"),
        (ask(FRANCE, temperature=2.5), "sampling.temperature", "0 to 2", "2.5"),
        (ask(FRANCE, top_p=0), "sampling.top_p", "above 0 to 1", "0.0"),
        (ask(FRANCE, max_tokens=0), "sampling.max_tokens", "1 or more", "0"),
        (ask(FRANCE, stop=["a"] * 9), "sampling.stop", "at most 8", "9"),
        (ask(""), "messages[0].content", "1 or more characters", "0"),
        (llm_pb2.GenerateRequest(), "messages", "1 or more", "0"),
        (ask(FRANCE, chat_pb2.ResponseFormat(regex="(")), "response_format.regex", "unclosed group", "("),
        (ask(FRANCE, chat_pb2.ResponseFormat(json_schema="{")), "response_format.json_schema", "JSON", "{"),
        (ask(FRANCE, chat_pb2.ResponseFormat(json_schema='{"type": "x"}')), "response_format.json_schema", "x", "type"),
    ],
)
async def test_a_request_that_cannot_be_served_names_field_limit_and_value(
    service: Service, request_: llm_pb2.GenerateRequest, field: str, limit: str, value: str
) -> None:
    code, named, text = await service.refusal(request_)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert named == field
    assert limit in text
    assert value in text


@pytest.mark.parametrize("schema", ["[" * 1_000, '{"const": NaN}', r'{"const": "\ud800"}', '{"a": 1, "a": 1}', "true"])
async def test_a_schema_that_is_no_json_is_the_request_s_fault(service: Service, schema: str) -> None:
    code, named, _ = await service.refusal(ask(FRANCE, chat_pb2.ResponseFormat(json_schema=schema)))
    assert (code, named) == (grpc.StatusCode.INVALID_ARGUMENT, "response_format.json_schema")


async def test_a_constraint_that_would_hold_up_the_engine_is_refused(service: Service) -> None:
    for wanted in (
        chat_pb2.ResponseFormat(json_schema='{"type": "integer", "multipleOf": 1000003}'),
        chat_pb2.ResponseFormat(regex=".?" * 300),
        chat_pb2.ResponseFormat(grammar='start: %json {"multipleOf": 1000003}\n'),
    ):
        code, _, text = await service.refusal(ask(FRANCE, wanted))
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert "what the engine can follow" in text


async def test_an_answer_whose_grammar_breaks_on_the_way_is_not_called_whole(service: Service) -> None:
    reasons = set()
    for seed in range(6):
        request = ask(STORY, chat_pb2.ResponseFormat(regex="([a-z]{1,70}){1,70}Z"), temperature=1.9, seed=seed)
        text, finish = await service.answer(request)
        assert finish.reason != chat_pb2.FINISH_REASON_STOP or text.endswith("Z")
        reasons.add(finish.reason)
    assert chat_pb2.FINISH_REASON_INTERRUPTED in reasons


async def test_a_grammar_that_keeps_too_much_open_ends_the_answer_before_it_holds_up_the_engine(
    service: Service,
) -> None:
    ambiguous = chat_pb2.ResponseFormat(grammar="start: a\na: a a | /[a-zA-Z .,]/\n")
    text, finish = await service.answer(ask(STORY, ambiguous, max_tokens=1_000))
    assert finish.reason == chat_pb2.FINISH_REASON_INTERRUPTED
    assert 0 < len(text) <= 600  # each letter may belong to as many readings as there were before it
    assert (await service.ask(FRANCE))[1].reason == chat_pb2.FINISH_REASON_STOP


async def test_one_tenants_constraints_hold_up_nobody_else(service: Service) -> None:
    async with flooding(service, "a") as codes:
        beside = [await first_text_s(service, "b") for _ in range(40)]
        constrained = [await first_text_s(service, "b", DIGITS) for _ in range(10)]
        health = [await check_health(service.process.spec.address, 1) for _ in range(5)]
    assert set(codes) <= {"OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"}
    assert {"INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"} <= set(codes)
    assert set(health) == {"SERVING"}
    # It was seconds, and for some of these a minute, before what each costs was bounded.
    assert sorted(beside)[len(beside) // 2] < _HANGS_S
    assert sorted(constrained)[len(constrained) // 2] < _HANGS_S


DIGITS = chat_pb2.ResponseFormat(regex="[0-9]{3}")
_HANGS_S = 3.0  # tells an engine that is held up from a machine that is busy


async def first_text_s(service: Service, tenant: str, wanted: chat_pb2.ResponseFormat | None = None) -> float:
    """How long a tenant waits for the first text of a short answer."""
    began = time.perf_counter()
    call = service.stub.Generate(ask(FRANCE, wanted, max_tokens=4), timeout=30, metadata=((TENANT_HEADER, tenant),))
    assert (await call.read()).text
    first_s = time.perf_counter() - began
    while await call.read() is not grpc.aio.EOF:
        pass
    return first_s


@asynccontextmanager
async def flooding(service: Service, tenant: str) -> AsyncIterator[list[str]]:
    """50 costly constraints a second, 32 at once at most, no two alike; how each call ended is in the list."""
    ended: list[str] = []
    places = asyncio.Semaphore(32)

    async def one(wanted: chat_pb2.ResponseFormat) -> None:
        try:
            async for _ in service.stub.Generate(
                ask(STORY, wanted, max_tokens=16), timeout=30, metadata=((TENANT_HEADER, tenant),)
            ):
                pass
            ended.append("OK")
        except grpc.aio.AioRpcError as error:
            ended.append(error.code().name)
        finally:
            places.release()

    async def flood() -> None:
        async with asyncio.TaskGroup() as group:
            for wanted in hostile.endless(*hostile.COSTLY):
                await places.acquire()
                group.create_task(one(wanted))
                await asyncio.sleep(0.02)

    task = asyncio.create_task(flood())
    await until(lambda: at_least(ended, 5), 30)
    yield ended
    task.cancel()
    await asyncio.wait({task})


async def at_least(ended: list[str], count: int) -> bool:
    return len(ended) >= count


async def test_cancelling_a_call_stops_the_engine(service: Service) -> None:
    call = service.stub.Generate(ask(STORY, NEVER_DONE, max_tokens=512))
    await call.read()
    assert (await service.model()).running == 1
    call.cancel()
    await until(lambda: idle(service), 30)
    generated = await service.gauge("vllm:generation_tokens_total")
    text, _ = await service.ask(FRANCE)  # the scheduler counts again when it next runs
    assert text == "The capital of France is Paris."
    assert await service.gauge("vllm:generation_tokens_total") - generated < 100


async def idle(service: Service) -> bool:
    model = await service.model()
    return (model.running, model.waiting) == (0, 0)


async def test_the_model_is_described(service: Service) -> None:
    model = await service.model()
    assert (model.name, model.engine, model.speculation) == ("demo-llm", "vllm", "draft_model")
    assert (model.context_tokens, model.max_tokens) == (1024, 1023)
    assert model.continues
    offered = [llm_pb2.FEATURE_TOOLS, llm_pb2.FEATURE_LOGPROBS, llm_pb2.FEATURE_CHOICE, llm_pb2.FEATURE_GRAMMAR]
    offered += [llm_pb2.FEATURE_TOP_K, llm_pb2.FEATURE_VLLM_SAMPLING]
    assert list(model.features) == offered
    assert model.default_sampling == chat_pb2.Sampling(temperature=0)


async def test_the_engine_s_own_metrics_are_on_the_services_page(service: Service) -> None:
    assert await service.gauge("vllm:num_requests_running") >= 0
    assert await service.gauge("vllm:spec_decode_num_accepted_tokens_total") > 0


async def test_the_key_value_cache_has_the_memory_that_it_was_told(service: Service) -> None:
    assert f'kv_cache_memory_bytes="{2**28}"' in await service.page()


async def test_the_engine_runs_its_model_itself(service: Service) -> None:
    titles = [" ".join(process.cmdline()).strip() for process in family(service.process)]
    assert [title for title in titles if title.startswith("VLLM::")] == ["VLLM::EngineCore"]


async def test_a_wrong_engine_setting_stops_the_start_and_is_named(tmp_path: Path) -> None:
    wrong = {"VLLM__MAX_NUM_SEQ": "4", "VLLM__MODEL": "/no/such/model"}
    started = [
        ServiceProcess(spec(f"wrong-{setting}", f"127.0.0.1:{free_port()}", **{setting: value}), tmp_path)
        for setting, value in wrong.items()
    ]
    for setting, process in zip(wrong, started, strict=True):
        assert await process.wait() == 2
        assert setting.removeprefix("VLLM__").lower() in process.tail(3)
        assert "loading" not in process.tail()  # as it says before it imports vLLM


async def test_sigterm_while_loading_ends_everything(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with TemporaryDirectory() as scratch:  # shorter than pytest's: a socket's path is short
        sockets = f"{scratch}/hedgerow-vllm-*"  # where its processes meet
        process = ServiceProcess(meeting_in(scratch, spec("loading", address)), tmp_path)
        await until(lambda: has_engine(process), 120, every_s=0.1)
        assert glob(sockets)
        started = family(process)
        assert await check_health(address, 5) == "NOT_SERVING"
        process.signal(signal.SIGTERM)
        assert await process.wait() == 0
        await until(lambda: gone(started), 30)
        assert not glob(sockets)


async def has_engine(process: ServiceProcess) -> bool:
    return len(family(process)) > 1


async def test_a_dead_engine_ends_the_calls_in_flight_and_the_process_and_leaves_no_file(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with TemporaryDirectory() as scratch:  # shorter than pytest's: a socket's path is short
        process = ServiceProcess(meeting_in(scratch, spec("dying", address, MAX_TOKENS_CAP="1000")), tmp_path)
        try:
            await process.wait_serving(START_S)
            engine = next(child for child in family(process) if "EngineCore" in " ".join(child.cmdline()))
            async with open_channel(address) as channel:
                request = ask(STORY, max_tokens=1000, temperature=1.9, logit_bias=[WITHOUT_END])
                call = llm_pb2_grpc.LLMServiceStub(channel).Generate(request)
                replies = aiter(call)
                assert (await anext(replies)).text
                engine.kill()
                *_, last = [reply async for reply in replies]
            assert last.finish.reason == chat_pb2.FINISH_REASON_INTERRUPTED
            assert await process.wait() == 1
        finally:
            await process.stop()
        assert glob(f"{scratch}/*vllm*") == []


async def test_an_openai_compatible_server_is_served_like_an_engine_of_our_own(tmp_path: Path) -> None:
    """vLLM's own server of the demo model is the provider."""
    port, key = free_port(), "sk-very-secret"
    async with provider(port, key, tmp_path) as server, openai_service(port, key, tmp_path) as service:
        text, finish = await service.ask(FRANCE)
        assert text == "The capital of France is Paris."
        assert finish.reason == chat_pb2.FINISH_REASON_STOP
        asked = ask(FRANCE).messages
        counted = await service.stub.CountTokens(llm_pb2.CountTokensRequest(messages=asked), timeout=5)
        assert counted.tokens == finish.usage.prompt_tokens
        text, _ = await service.answer(begun("The capital of France"))
        assert text == " is Paris."
        _, finish = await service.ask(STORY, max_tokens=5)
        assert (finish.reason, finish.usage.completion_tokens) == (chat_pb2.FINISH_REASON_LENGTH, 5)
        code, _, text = await service.refusal(ask("hello " * 2000))
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert "1024 tokens" in text
        ((name, arguments),) = await called(service, offering(chat_pb2.ToolChoice(name="weather")))
        assert name == "weather"
        jsonschema.validate(arguments, CITY)
        replies = [reply async for reply in service.stub.Generate(ask(FRANCE, top_logprobs=1), timeout=60)]
        told = "".join(logprob.token for reply in replies for logprob in reply.logprobs)
        assert told.startswith("The capital of France is Paris.")
        async with anthropic_service(port, key, tmp_path) as messages:
            await check_anthropic(messages)
        replies = aiter(service.stub.Generate(ask(STORY, max_tokens=500, logit_bias=[WITHOUT_END])))
        await anext(replies)
        server.kill()
        *_, last = [reply async for reply in replies]
        assert last.finish.reason == chat_pb2.FINISH_REASON_INTERRUPTED
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await service.ask(FRANCE)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert key not in service.process.log.read_text()


async def check_anthropic(service: Service) -> None:
    """The same server, through its Messages API."""
    text, finish = await service.ask(FRANCE)
    assert (text, finish.reason) == ("The capital of France is Paris.", chat_pb2.FINISH_REASON_STOP)
    counted = await service.stub.CountTokens(llm_pb2.CountTokensRequest(messages=ask(FRANCE).messages), timeout=5)
    assert counted.tokens == finish.usage.prompt_tokens
    _, finish = await service.ask(STORY, max_tokens=5)
    assert (finish.reason, finish.usage.completion_tokens) == (chat_pb2.FINISH_REASON_LENGTH, 5)
    ((name, arguments),) = await called(service, offering(chat_pb2.ToolChoice(name="weather")))
    assert name == "weather"
    jsonschema.validate(arguments, CITY)
    assert (await service.refusal(ask("hello " * 2000)))[0] == grpc.StatusCode.INVALID_ARGUMENT


@asynccontextmanager
async def provider(port: int, key: str, folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """`vllm serve`, ready."""
    options = {"model": MODELS / "demo-llm", "served-model-name": "demo", "port": port, "api-key": key}
    terse = json.dumps({"backend": "guidance", "disable_any_whitespace": True})  # else this model writes nothing else
    options |= {
        "max-model-len": 1024,
        "kv-cache-memory-bytes": 2**28,
        "tool-call-parser": "hermes",
        "structured-outputs-config": terse,
    }
    flags = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    variables = environment(VllmSettings(model=str(MODELS / "demo-llm")))
    with (folder / "provider.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-m",
                "vllm.entrypoints.openai.api_server",
                "--host",
                "127.0.0.1",
                "--enforce-eager",
                "--enable-auto-tool-choice",
                *flags,
            ),
            env={**os.environ, **variables},
            stdout=log,
            stderr=log,
        )
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            await until(lambda: answers(client), START_S, every_s=0.5)
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def answers(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/health")).is_success
    except httpx.TransportError:
        return False


def openai_service(port: int, key: str, folder: Path) -> AbstractAsyncContextManager[Service]:
    return remote_service("openai", port, folder, API_KEY=key, CONTINUES="true")


def anthropic_service(port: int, key: str, folder: Path) -> AbstractAsyncContextManager[Service]:
    (folder / "key").write_text(key)
    bearer = json.dumps({"authorization": f"Bearer {key}"})  # which is what vLLM's server looks at
    own = {"API_KEY_FILE": str(folder / "key"), "EXTRA_HEADERS": bearer, "CONTEXT_TOKENS": "1024"}
    return remote_service("anthropic", port, folder, **own)


@asynccontextmanager
async def remote_service(engine: str, port: int, folder: Path, **own: str) -> AsyncIterator[Service]:
    address = f"127.0.0.1:{free_port()}"
    own |= {"BASE_URL": f"http://127.0.0.1:{port}/v1", "MODEL": "demo"}
    settings = {"ADDRESS": address, "ENGINE": engine}
    settings |= {f"{engine.upper()}__{name}": value for name, value in own.items()}
    prefixed = {f"HEDGEROW_LLM_{name}": value for name, value in settings.items()}
    process = ServiceProcess(ServiceSpec(engine, "services.llm", address, prefixed), folder)
    try:
        await process.wait_serving()
        async with open_channel(address) as channel:
            yield Service(process, llm_pb2_grpc.LLMServiceStub(channel), "")
    finally:
        await process.stop()


async def test_a_killed_service_leaves_no_engine_behind(service: Service) -> None:
    """The last of the module, whose engine it ends."""
    started = family(service.process)
    assert len(started) > 1
    psutil.Process(service.process.pid).kill()  # nobody watches over it now but the engine's own plugin
    await until(lambda: gone(started), 30)
