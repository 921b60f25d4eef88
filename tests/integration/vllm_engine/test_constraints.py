"""Answers that must have a form, and requests that vLLM is not given."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import grpc
import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from launcher.processes import check_health
from services.runtime.rpc.authorization import TENANT_HEADER
from tests import hostile
from tests.integration.vllm_engine.service import (
    FRANCE,
    START_S,
    STORY,
    USER,
    Service,
    ask,
    begun,
    offering,
)
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(2 * START_S)]


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


DIGITS = chat_pb2.ResponseFormat(regex="[0-9]{3}")
_HANGS_S = 3.0  # separates an engine that is held up from a busy machine


async def test_one_tenants_constraints_delay_no_other_tenant(service: Service) -> None:
    async with flooding(service, "a") as codes:
        beside = [await first_text_s(service, "b") for _ in range(40)]
        constrained = [await first_text_s(service, "b", DIGITS) for _ in range(10)]
        health = [await check_health(service.process.spec.address, _HANGS_S) for _ in range(5)]
    assert set(codes) <= {"OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"}
    assert {"INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"} <= set(codes)
    assert set(health) == {"SERVING"}
    # It was seconds, and for some of these a minute, before what each costs was bounded.
    assert sorted(beside)[len(beside) // 2] < _HANGS_S
    assert sorted(constrained)[len(constrained) // 2] < _HANGS_S


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
    slots = asyncio.Semaphore(32)

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
            slots.release()

    async def flood() -> None:
        async with asyncio.TaskGroup() as group:
            for wanted in hostile.endless(*hostile.COSTLY):
                await slots.acquire()
                group.create_task(one(wanted))
                await asyncio.sleep(0.02)

    task = asyncio.create_task(flood())
    await until(lambda: at_least(ended, 5), 30)
    yield ended
    task.cancel()
    await asyncio.wait({task})


async def at_least(ended: list[str], count: int) -> bool:
    return len(ended) >= count
