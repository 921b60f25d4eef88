"""One contract for all ways to a service: over gRPC, on a standing stream, and within the process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import grpc
import pytest
from prometheus_client import REGISTRY

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from hedgerow.router.v1 import router_pb2
from services.gateway.upstream.call_errors import Refused
from services.gateway.upstream.calls import whose
from services.gateway.upstream.router import Router
from services.gateway.upstream.start import Notice, Start
from services.runtime.errors import (
    ContextExceeded,
    Exhausted,
    Faulty,
    InvalidInput,
    Missing,
    NotSupported,
    ServiceError,
    ShareUsed,
    Starting,
    TooLate,
    Unavailable,
)
from tests.unit.runtime.rpc.transports import (
    LLM,
    Scripted,
    Wired,
    forever,
    in_process,
    on_a_stream,
    over_grpc,
    read_all,
)
from tests.waiting import until


@pytest.fixture(params=[over_grpc, in_process, on_a_stream])
async def wired(request: pytest.FixtureRequest) -> AsyncIterator[Wired]:
    async with request.param(Scripted()) as made:
        made.assemble()
        yield made


async def test_an_answer_arrives_message_by_message_and_ends_with_its_finish(wired: Wired) -> None:
    assert await read_all(wired) == ["Pa", "ris", ""]


async def test_a_unary_call_is_answered(wired: Wired) -> None:
    assert await wired.llm.context_tokens(30) == 4096
    messages = [chat_pb2.Message(content="a"), chat_pb2.Message(content="b")]
    assert await wired.llm.count_tokens(messages, 30, ()) == 2


async def test_changes_of_a_sent_message_do_not_reach_the_other_side(wired: Wired) -> None:
    gate = asyncio.Event()
    wired.service.work = gate.wait
    request = llm_pb2.GenerateRequest(prefix="as it was")
    completion = wired.llm.generate(request, 5, ())
    await until(lambda: bool(wired.service.requests), 5)
    request.prefix = "changed"
    gate.set()
    first = await completion.read()
    second = await completion.read()
    assert (first.text, second.text) == ("Pa", "ris")
    assert wired.service.requests[0].prefix == "as it was"
    completion.cancel()


async def test_a_servicer_knows_the_metadata_and_the_deadline(wired: Wired) -> None:
    completion = wired.llm.generate(llm_pb2.GenerateRequest(), 60.0, (whose("acme corp"),))
    await completion.read()
    (call,) = wired.service.calls
    assert call.header("x-hedgerow-tenant") == "acme%20corp"
    assert 40.0 < call.deadline.remaining() < 60.1
    completion.cancel()


@pytest.mark.parametrize("streamed", [True, False])
async def test_at_its_deadline_a_call_ends_as_too_late_and_its_servicer_stops(wired: Wired, streamed: bool) -> None:
    wired.service.work = forever
    while not wired.service.calls:  # a busy machine may not send the first one in time
        with pytest.raises(TooLate):
            await (read_all(wired, 0.05) if streamed else wired.llm.count_tokens((), 0.05, ()))
    await asyncio.wait_for(wired.service.stopped.wait(), 5)


async def test_a_call_that_is_cancelled_stops_its_servicer(wired: Wired) -> None:
    wired.service.work = forever
    completion = wired.llm.generate(llm_pb2.GenerateRequest(), 5, ())
    await until(lambda: bool(wired.service.calls), 5)
    completion.cancel()
    await asyncio.wait_for(wired.service.stopped.wait(), 5)
    with pytest.raises(Unavailable):  # not cancelled itself: its call was
        await completion.read()


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_caller_that_is_cancelled_stops_the_servicer(wired: Wired, streamed: bool) -> None:
    wired.service.work = forever
    asking = asyncio.create_task(read_all(wired) if streamed else wired.llm.count_tokens((), 5, ()))  # type: ignore[arg-type]
    await until(lambda: bool(wired.service.calls), 5)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await asyncio.wait_for(wired.service.stopped.wait(), 5)


ERRORS: list[tuple[Exception, type[ServiceError], str]] = [
    (InvalidInput("top_k", "1 or more", 0), Refused, "top_k: 1 or more, got 0"),
    (ContextExceeded.of(10, 12), ContextExceeded, "maximum context length is 10 tokens"),
    (Missing("no such model"), Missing, "small: NOT_FOUND: no such model"),
    (Exhausted("büsy", retry_delay_s=1.5), Exhausted, "small: RESOURCE_EXHAUSTED: büsy"),
    (ShareUsed("yours is used", retry_delay_s=0.5), ShareUsed, "yours is used"),
    (TooLate("no time"), TooLate, "small: DEADLINE_EXCEEDED: no time"),
    (NotSupported("no pictures"), NotSupported, "small: UNIMPLEMENTED: no pictures"),
    (NotSupported("seed: not here", field="seed"), NotSupported, "seed: not here"),
    (Unavailable("the provider is down"), Unavailable, "small: UNAVAILABLE: the provider is down"),
    (Starting("loading"), Starting, "small: UNAVAILABLE: loading"),
    (Faulty("broke"), Faulty, "small: INTERNAL: broke"),
    (RuntimeError("a secret"), Faulty, "internal error, correlation id"),
]


@pytest.mark.parametrize(("raised", "kind", "text"), ERRORS, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("streamed", [True, False])
async def test_an_error_keeps_its_kind_its_words_and_its_delay(
    wired: Wired, raised: Exception, kind: type[ServiceError], text: str, streamed: bool
) -> None:
    wired.service.error, wired.service.texts = raised, ()
    with pytest.raises(kind) as caught:
        await (read_all(wired) if streamed else wired.llm.count_tokens((), 30, ()))
    assert type(caught.value) is kind
    assert text in caught.value.message
    assert "secret" not in caught.value.message
    assert caught.value.retry_delay_s == getattr(raised, "retry_delay_s", None)
    if isinstance(raised, InvalidInput | NotSupported):
        assert {name: caught.value.metadata.get(name) for name in raised.metadata} == raised.metadata


async def test_an_error_in_mid_answer_comes_after_the_text(wired: Wired) -> None:
    wired.service.error = Unavailable("lost")
    completion = wired.llm.generate(llm_pb2.GenerateRequest(), 5, ())
    assert [(await completion.read()).text, (await completion.read()).text] == ["Pa", "ris"]
    with pytest.raises(Unavailable, match="lost"):
        await completion.read()


@pytest.mark.parametrize("wiring", [over_grpc, in_process, on_a_stream])
async def test_a_service_that_is_not_assembled_is_starting_and_health_says_when_it_serves(wiring: Any) -> None:
    async with wiring(Scripted()) as wired:
        with pytest.raises(Starting):
            await wired.llm.count_tokens((), 30, ())
        start = Start(Notice())
        following = asyncio.create_task(start.follow(wired.channel, 60))
        await until(lambda: start.starting, 5)
        assert not start.served
        wired.assemble()
        await until(lambda: start.served and not start.starting, 5)
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following


async def test_a_method_that_a_service_lacks_is_not_there(wired: Wired) -> None:
    unknown: Any = wired.channel.unary_unary("/hedgerow.llm.v1.LLMService/Unknown")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await unknown(b"", timeout=30)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_the_clean_up_of_a_late_call_is_not_cancelled_a_second_time(wired: Wired) -> None:
    cleaning, may_end, cleaned = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def stop_slowly() -> None:
        try:
            await forever()
        finally:
            cleaning.set()
            await may_end.wait()
            cleaned.set()

    wired.service.work = stop_slowly
    with pytest.raises(TooLate):
        await wired.llm.count_tokens((), 0.2, ())
    await until(cleaning.is_set, 5)
    wired.service.work = None
    assert await wired.llm.context_tokens(30) == 4096  # all that the caller sent before has arrived
    may_end.set()
    await until(cleaned.is_set, 5)


async def test_a_call_tells_its_status_once_it_has_ended(wired: Wired) -> None:
    wired.service.error = Exhausted("busy")
    call: Any = wired.channel.unary_unary(
        "/hedgerow.llm.v1.LLMService/GetModel", llm_pb2.GetModelRequest.SerializeToString
    )(llm_pb2.GetModelRequest(), timeout=30)
    assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert await call.details() == "busy"
    assert "grpc-status-details-bin" in await call.trailing_metadata()


async def test_tables_are_followed_and_observations_arrive(wired: Wired) -> None:
    router = Router(wired.channel)
    tables = router.tables()
    assert (await anext(tables)).version == 7
    await tables.aclose()

    async def observations() -> AsyncIterator[router_pb2.ObserveRequest]:
        for model in ("a", "b"):
            yield router_pb2.ObserveRequest(observations=[router_pb2.Observation(model=model)])

    await router.observe(observations())
    assert [request.observations[0].model for request in wired.service.requests] == ["a", "b"]


async def test_a_servicer_is_held_back_by_a_reader_that_is_slow(wired: Wired) -> None:
    wired.service.texts = ("word " * 2_000,) * 5_000  # 50 MB
    completion = wired.llm.generate(llm_pb2.GenerateRequest(), 30, ())
    await completion.read()
    await until(lambda: wired.service.sent > 5, 5)
    before = -1
    while before < wired.service.sent:  # until it stands still
        before = wired.service.sent
        await asyncio.sleep(0.1)
    assert wired.service.sent < 5_000
    completion.cancel()
    await asyncio.wait_for(wired.service.stopped.wait(), 5)


async def test_calls_are_counted_by_service_method_and_code(wired: Wired) -> None:
    def counted(method: str, code: str) -> float:
        labels = {"service": LLM.full_name, "method": method, "code": code}
        return REGISTRY.get_sample_value("hedgerow_rpc_seconds_count", labels) or 0.0

    before = counted("Generate", "OK"), counted("CountTokens", "RESOURCE_EXHAUSTED"), counted("Generate", "CANCELLED")
    await read_all(wired)
    wired.service.error = Exhausted("busy")
    with pytest.raises(Exhausted):
        await wired.llm.count_tokens((), 30, ())
    wired.service.work = forever
    called, completion = len(wired.service.calls), wired.llm.generate(llm_pb2.GenerateRequest(), 30, ())
    await until(lambda: len(wired.service.calls) > called)
    completion.cancel()
    await until(lambda: counted("Generate", "CANCELLED") == before[2] + 1, 5)
    assert (counted("Generate", "OK"), counted("CountTokens", "RESOURCE_EXHAUSTED")) == (before[0] + 1, before[1] + 1)
