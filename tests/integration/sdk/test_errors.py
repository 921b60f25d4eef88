"""Errors of the SDK and calls that it cancels, with a scripted gateway over a real connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import hedgerow
from hedgerow.channel import MAX_MESSAGE_BYTES
from hedgerow.gateway.v1 import gateway_pb2 as pb
from launcher.processes import free_port
from tests.integration.scripted import Hold, Refusal
from tests.integration.scripted_gateway import (
    TRACE_ID,
    ScriptedGateway,
    accepted,
    answer,
    deltas,
    final,
)
from tests.waiting import budgets_ms, until


async def test_a_refusal_becomes_a_typed_error_with_its_reason_and_when_to_come_back(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    gateway.script = [Refusal("RESOURCE_EXHAUSTED", "too busy", "SHED", {"limit": "8"}, retry_delay_ms=1500)]
    with pytest.raises(hedgerow.ResourceExhausted, match="too busy") as caught:
        await client.ask("?")
    error = caught.value
    assert (error.code, error.reason, error.metadata) == ("RESOURCE_EXHAUSTED", "SHED", {"limit": "8"})
    assert error.retry_delay_s == 1.5
    assert error.trace_id is None


async def test_an_error_after_admission_knows_its_trace(gateway: ScriptedGateway, client: hedgerow.AsyncClient) -> None:
    gateway.script = [accepted(), Refusal("UNAVAILABLE", "no model answers", "NO_MODEL")]
    with pytest.raises(hedgerow.Unavailable, match="no model answers") as caught:
        await client.ask("?")
    assert caught.value.trace_id == TRACE_ID


async def test_a_stream_that_ends_without_its_final_event_is_an_error(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    gateway.script = [accepted(), *deltas("Pa")]
    stream = client.stream("?")
    with pytest.raises(hedgerow.Internal, match="without a final event"):
        async for _ in stream:
            pass
    assert [item async for item in stream] == []  # and then it is over


async def test_an_error_that_follows_the_final_event_takes_nothing_back(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    gateway.script = [*answer("Yes."), Refusal("INTERNAL", "while cleaning up")]
    assert (await client.ask("?")).text == "Yes."


@pytest.mark.parametrize(
    ("connect", "call", "service"),
    [
        (hedgerow.AsyncClient, lambda client: client.ask("?"), "gateway"),
        (hedgerow.AsyncClient, lambda client: client.prewarm(timeout_s=0.2), "gateway"),
        (hedgerow.AsyncClient, lambda client: anext(client.converse(nothing_said())), "gateway"),
        (hedgerow.AsyncAudioClient, lambda client: client.transcribe(b"wav"), "audio service"),
        (hedgerow.AsyncVisionClient, lambda client: client.classify(b"png"), "vision service"),
    ],
    ids=["ask", "prewarm", "converse", "transcribe", "classify"],
)
async def test_a_service_that_is_not_there_is_named(connect: Any, call: Any, service: str) -> None:
    target = f"127.0.0.1:{free_port()}"
    async with connect(target) as client:
        with pytest.raises(hedgerow.Unavailable, match=f"no {service} at {target}$") as caught:
            await call(client)
    assert caught.value.reason == f"NO_{service.upper().replace(' ', '_')}"


async def nothing_said() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


async def test_a_gateway_that_never_ends_is_caught_by_the_calls_deadline(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    gateway.script = [accepted(), Hold()]
    budgets = budgets_ms(125)

    async def late() -> hedgerow.DeadlineExceeded:
        budget_ms = next(budgets)
        with pytest.raises(
            hedgerow.DeadlineExceeded, match=f"had not finished after {1 + budget_ms / 1000} s"
        ) as caught:
            await client.ask("?", budget_ms=budget_ms)
        return caught.value

    error = await until(late, holds=lambda error: error.trace_id == TRACE_ID)  # the gateway's first message has come
    assert error.reason == "CLIENT_DEADLINE"


async def test_a_request_that_no_gateway_would_take_is_refused_before_it_is_sent(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    with pytest.raises(
        hedgerow.InvalidArgument,
        match=rf"request: at most {MAX_MESSAGE_BYTES} bytes, got 100000\d\d; send shorter messages",
    ) as caught:
        client.stream("x" * 10_000_000)
    assert caught.value.metadata["field"] == "request"
    assert gateway.requests == []


async def test_leaving_a_stream_cancels_the_call(gateway: ScriptedGateway, client: hedgerow.AsyncClient) -> None:
    gateway.script = [accepted(), *deltas("Pa"), Hold()]
    async for item in client.stream("?"):
        if isinstance(item, hedgerow.TextDelta):
            break
    await asyncio.wait_for(gateway.cancelled.wait(), 20)


async def test_cancelling_the_waiting_task_cancels_the_call(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    gateway.script = [accepted(), Hold()]
    begun = asyncio.Event()

    async def wait() -> None:
        async for _ in client.stream("?"):
            begun.set()

    task = asyncio.create_task(wait())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(gateway.cancelled.wait(), 20)


async def test_a_callback_that_raises_cancels_the_call(gateway: ScriptedGateway, client: hedgerow.AsyncClient) -> None:
    gateway.script = [accepted(), *deltas("Pa"), Hold()]

    def refuse(_: str) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await client.ask("?", on_token=refuse)
    await asyncio.wait_for(gateway.cancelled.wait(), 20)


async def test_a_batch_that_ends_early_says_which_results_are_missing(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    gateway.script = [pb.GenerateBatchResponse(index=1, final=final())]
    with pytest.raises(hedgerow.Internal, match=r"without results for \[0, 2\]"):
        async for _ in client.batch(["a", "b", "c"]):
            pass
