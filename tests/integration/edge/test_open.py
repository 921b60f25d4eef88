"""What comes in from outside meets Envoy first: callers of several languages, browsers, and limits."""

from __future__ import annotations

import asyncio
import json
import shutil
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import httpx
import pytest

import hedgerow
from hedgerow.gateway.v1 import gateway_pb2 as pb
from tests.conftest import REPOSITORY
from tests.integration.edge.calls import (
    CONNECTIONS,
    GENERATE,
    ORIGIN,
    QUESTION,
    STREAMS,
    ask,
    frames,
    refusal,
    seen,
    web_call,
)
from tests.integration.edge.running import Edge, Gateway
from tests.integration.scripted import Hold, Refusal
from tests.integration.scripted_gateway import TRACE_ID, answer

pytestmark = pytest.mark.asyncio(loop_scope="session")
NODE = Path(__file__).parents[1] / "node"
TRACEPARENT = f"00-{TRACE_ID}-00f067aa0ba902b7-01"


async def test_the_sdk_streams_an_answer_through_the_edge(edge: Edge, scripted: Gateway) -> None:
    async with hedgerow.AsyncClient(edge.address, api_key="sesame") as client:
        got = await client.ask("What is the capital of France?", budget_ms=20_000)
    assert got.text == "Paris."
    assert scripted.metadata["authorization"] == "Bearer sesame"  # keys are the gateway's to check
    assert scripted.time_remaining_s is not None
    assert scripted.time_remaining_s <= 30


async def test_text_comes_as_the_gateway_sends_it(edge: Edge, scripted: Gateway) -> None:
    begun, rest = answer("Par")[:-1], answer("Par", "is.")[-2:]
    hold = Hold()
    scripted.script = [*begun, hold, *rest]
    async with hedgerow.AsyncClient(edge.address) as client, client.stream("…") as events:
        async for event in events:
            if isinstance(event, hedgerow.TextDelta):
                break
        assert event.text == "Par"
        hold.release.set()
        assert [event.text async for event in events if isinstance(event, hedgerow.TextDelta)] == ["is."]


async def test_a_call_cancelled_at_the_edge_is_cancelled_at_the_gateway(edge: Edge, scripted: Gateway) -> None:
    scripted.script, scripted.cancelled = [*answer("Par")[:-1], Hold()], asyncio.Event()
    async with hedgerow.AsyncClient(edge.address) as client:
        events = client.stream("…")
        await anext(aiter(events))
        events.cancel()
        async with asyncio.timeout(20):
            await scripted.cancelled.wait()


async def test_a_node_client_streams_an_answer_with_nothing_but_the_protos(
    edge: Edge, scripted: Gateway, tmp_path: Path
) -> None:
    if not shutil.which("npm"):
        pytest.skip("there is no npm")
    for file in ("package.json", "package-lock.json", "ask.js"):
        shutil.copy(NODE / file, tmp_path)
    await run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", folder=tmp_path)
    said = json.dumps({"authorization": "Bearer sesame", "traceparent": TRACEPARENT})
    asked = ("node", "ask.js", edge.address, str(REPOSITORY / "protos"), "What is the capital of France?", said)
    *events, status = map(json.loads, (await run(*asked, folder=tmp_path)).splitlines())
    assert "".join(event["delta"]["text"] for event in events if "delta" in event) == "Paris."
    assert [event["kind"] for event in events] == ["accepted", "stage", "delta", "delta", "final"]
    assert status == {"status": "OK", "details": ""}
    assert scripted.requests[-1].messages[0].content == "What is the capital of France?"
    assert scripted.metadata["traceparent"] == TRACEPARENT


async def test_a_page_asks_whether_it_may_call_and_then_streams_an_answer(edge: Edge, scripted: Gateway) -> None:
    wants = {"access-control-request-method": "POST", "access-control-request-headers": "content-type,x-grpc-web"}
    async with httpx.AsyncClient(base_url=f"http://{edge.address}", timeout=20) as browser:
        may = await browser.options(GENERATE, headers={"origin": ORIGIN, **wants})
        answered = await browser.post(**web_call())
    assert may.status_code == 200
    assert may.headers["access-control-allow-origin"] == ORIGIN
    assert {"authorization", "x-grpc-web"} <= set(may.headers["access-control-allow-headers"].split(","))
    assert answered.headers["access-control-allow-origin"] == ORIGIN
    assert answered.headers["content-type"] == "application/grpc-web+proto"
    *messages, (last, trailers) = frames(answered.content)
    events = [event for _, data in messages for event in pb.GenerateResponse.FromString(data).events]
    assert "".join(event.delta.text for event in events) == "Paris."
    assert last
    assert b"grpc-status:0" in trailers


async def run(*command: str, folder: Path) -> str:
    """The output of a program that must succeed."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, stdout=pipe, stderr=pipe)
    async with asyncio.timeout(120):
        output, problems = await process.communicate()
    assert process.returncode == 0, problems.decode()
    return output.decode()


async def test_an_error_of_the_gateway_keeps_its_code_and_its_reason(edge: Edge, scripted: Gateway) -> None:
    scripted.script = [Refusal("RESOURCE_EXHAUSTED", "over its quota", "QUOTA_EXCEEDED", retry_delay_ms=250)]
    async with hedgerow.AsyncClient(edge.address) as client:
        with pytest.raises(hedgerow.HedgerowError) as refused:
            await client.ask("…")
    assert (refused.value.code, refused.value.reason) == ("RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED")


async def test_a_message_larger_than_envoys_buffers_goes_both_ways(edge: Edge, scripted: Gateway) -> None:
    scripted.script = answer("x" * 3_000_000)
    picture = pb.GenerateRequest(messages=QUESTION.messages, images=[{"data": bytes(3_000_000)}])
    async with grpc.aio.insecure_channel(edge.address) as channel:
        assert len(await ask(channel, request=picture)) == 3_000_000
    assert scripted.requests[-1] == picture


async def test_a_forged_tenant_never_reaches_the_gateway(edge: Edge, scripted: Gateway) -> None:
    forged = (("x-hedgerow-tenant", "evil"), ("x-envoy-max-retries", "9"), ("x-envoy-upstream-rq-timeout-ms", "1"))
    async with grpc.aio.insecure_channel(edge.address) as channel:
        assert await ask(channel, forged) == "Paris."
        disguised = await refusal(channel, (("x_hedgerow_tenant", "evil"),))
    assert "x-hedgerow-tenant" not in scripted.metadata
    assert {name for name in scripted.metadata if name.startswith("x-envoy-")} <= {"x-envoy-external-address"}
    assert disguised.code() is grpc.StatusCode.INTERNAL  # HTTP/2 resets the stream


async def test_headers_beyond_the_limit_are_refused_and_their_neighbours_are_not(edge: Edge, scripted: Gateway) -> None:
    async with grpc.aio.insecure_channel(edge.address) as channel:
        scripted.script = [hold := Hold(), *answer("Par", "is.")]
        beside = asyncio.create_task(ask(channel))
        refused = await refusal(channel, (("too-much", "x" * 20_000),))
        hold.release.set()
        assert await beside == "Paris."
    async with httpx.AsyncClient(base_url=f"http://{edge.address}", timeout=20) as browser:
        plain = await browser.post(**web_call(**{"too-much": "x" * 20_000}))
    assert refused.code() is grpc.StatusCode.INTERNAL
    assert plain.status_code == 431


async def test_streams_beyond_the_limit_wait_for_others_to_end(edge: Edge, scripted: Gateway) -> None:
    scripted.requests.clear()
    scripted.script = [hold := Hold(), *answer("Par", "is.")]
    async with grpc.aio.insecure_channel(edge.address) as channel:
        calls = [asyncio.create_task(ask(channel)) for _ in range(STREAMS)]
        await seen(scripted, STREAMS)
        one_more = await refusal(channel, timeout_s=0.3)
        hold.release.set()
        assert await asyncio.gather(*calls) == ["Paris."] * STREAMS
        assert await ask(channel) == "Paris."
    assert one_more.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert len(scripted.requests) == STREAMS + 1  # the gateway never saw the call that timed out


async def test_connections_beyond_the_limit_are_closed_at_once(edge: Edge, scripted: Gateway) -> None:
    host, _, port = edge.address.rpartition(":")
    async with grpc.aio.insecure_channel(edge.address) as channel, AsyncExitStack() as stack:
        assert await ask(channel) == "Paris."
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(CONNECTIONS)]
        for _, writer in silent:
            stack.callback(writer.close)
        closed = [asyncio.create_task(reader.read(1)) for reader, _ in silent]
        done, open_still = await asyncio.wait(closed, timeout=20, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result() for task in done][:1] == [b""]
        assert open_still
        assert await ask(channel) == "Paris."  # the first connection stays
        for task in open_still:
            task.cancel()


async def test_paths_that_the_gateway_does_not_serve_end_at_the_edge(edge: Edge, scripted: Gateway) -> None:
    async with grpc.aio.insecure_channel(edge.address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await channel.unary_unary("/hedgerow.cache.v1.CacheService/Lookup")(b"")
    async with httpx.AsyncClient(base_url=f"http://{edge.address}", timeout=20) as browser:
        answers = [await browser.get(path) for path in ("/", "/config_dump", GENERATE)]
    assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert [got.status_code for got in answers] == [404, 404, 404]
    assert scripted.metadata == {}


async def test_a_deadline_holds_at_the_edge_too(edge: Edge, scripted: Gateway) -> None:
    scripted.script, scripted.cancelled = [Hold()], asyncio.Event()
    async with grpc.aio.insecure_channel(edge.address) as channel:
        while not scripted.cancelled.is_set():  # a busy machine may not send the first one in time
            late = await refusal(channel, timeout_s=0.2)
            assert late.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_call_is_one_line_in_the_access_log_with_its_trace_id(edge: Edge, scripted: Gateway) -> None:
    trace_id = "a" * 32
    async with grpc.aio.insecure_channel(edge.address) as channel:
        await ask(channel, (("traceparent", f"00-{trace_id}-00f067aa0ba902b7-01"),))
    assert scripted.metadata["traceparent"] == f"00-{trace_id}-00f067aa0ba902b7-01"  # as it came
    line = await edge.logged(trace_id=trace_id)
    expected = {"path": GENERATE, "grpc_status": "OK", "upstream": scripted.target}
    assert expected.items() <= line.items()
    assert "tenant" not in line, "the request names no tenant"
    assert line["bytes_sent"] > 0
    assert line["duration_ms"] >= 0
