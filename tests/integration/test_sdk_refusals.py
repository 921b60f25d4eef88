"""The SDK's errors for refusals of a real gateway in front of a scripted model."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import format_trace_id

import hedgerow
from tests.conftest import Start
from tests.integration.http_gateway import HttpGateway, start_http_gateway
from tests.integration.scripted import Hold
from tests.integration.scripted_llm import ScriptedLlm, words
from tests.keys import digest
from tests.waiting import budgets_ms, until


async def limited(start: Start, llm: ScriptedLlm, **limits: float) -> HttpGateway:
    """A gateway with one tenant, whose key is `secret`."""
    return await start_http_gateway(start, llm, tenants=json.dumps({"acme": {"keys": [digest("secret")], **limits}}))


@pytest.mark.usefixtures("patient")
async def test_an_item_of_a_batch_over_its_quota_says_when_to_come_back(start: Start, llm: ScriptedLlm) -> None:
    gateway = await limited(start, llm, requests_per_s=0.01, requests_burst=1)
    async with hedgerow.AsyncClient(gateway.process.spec.address, api_key="secret") as client:
        results = [result async for _, result in client.batch(["What?", "Why?"], budget_ms=8_000)]
    (error,) = [result for result in results if isinstance(result, hedgerow.HedgerowError)]
    assert isinstance(error, hedgerow.ResourceExhausted)
    assert (error.reason, error.metadata["quota"]) == ("QUOTA_EXCEEDED", "requests")
    assert error.retry_delay_s is not None
    assert 60 < error.retry_delay_s <= 100
    assert error.trace_id is not None
    assert len(error.trace_id) == 32
    assert [made.policy for made in error.decisions] == ["quota"]


async def test_a_model_that_there_is_not_is_not_found_and_a_tiers_name_is_the_tier_as_by_http(
    gateway: HttpGateway,
) -> None:
    async with hedgerow.AsyncClient(gateway.process.spec.address) as client:
        with pytest.raises(hedgerow.NotFound, match="model: one of m, auto, fast, balanced, quality, got n") as caught:
            await client.ask("What?", model="n")
        batch = [result async for _, result in client.batch(["What?"], model="n")]
        for name in ("auto", "fast", "m"):
            assert (await client.ask("What?", model=name)).model == "m"
    for error in (caught.value, *batch):
        assert isinstance(error, hedgerow.NotFound)
        assert (error.reason, error.metadata["field"], error.metadata["value"]) == ("MODEL_UNKNOWN", "model", "n")


async def test_an_invalid_picture_is_refused_with_its_path_and_the_limit(
    start: Start, llm: ScriptedLlm, models: Path
) -> None:
    vision = await start("vision", models_dir=str(models))
    gateway = await start_http_gateway(start, llm, vision_address=vision.spec.address)
    async with hedgerow.AsyncClient(gateway.process.spec.address) as client:
        with pytest.raises(hedgerow.InvalidArgument) as caught:
            await client.ask("What is this?", images=[b"no picture"], budget_ms=20_000)
    assert caught.value.reason == "IMAGE_REFUSED"
    assert caught.value.metadata["field"] == "images[0]"
    assert "PNG" in caught.value.metadata["limit"]


async def test_a_port_that_speaks_http_and_a_url_are_refused_with_their_own_errors(gateway: HttpGateway) -> None:
    wrong = f"127.0.0.1:{gateway.port}"
    async with hedgerow.AsyncClient(wrong) as client:
        for call in (client.ask("What?"), client.prewarm(timeout_s=0.5)):
            with pytest.raises(hedgerow.Unavailable, match=rf"{wrong}: the port speaks HTTP/1.1, not gRPC") as caught:
                await call
            assert caught.value.reason == "NOT_GRPC"
    with pytest.raises(hedgerow.Unavailable, match=r"the port speaks HTTP/1\.1"):
        await asyncio.to_thread(hedgerow.Client(wrong).prewarm, 0.5)
    with pytest.raises(hedgerow.InvalidArgument, match=rf"target: host:port, .*; without the scheme it is {wrong}$"):
        hedgerow.Client(f"http://{wrong}/v1")
    with pytest.raises(hedgerow.InvalidArgument, match=r"mesh.example:443, with tls=hedgerow.Tls\(\) for TLS$"):
        hedgerow.AsyncClient("https://mesh.example:443")


async def test_an_answer_is_part_of_the_callers_trace(gateway: HttpGateway) -> None:
    with TracerProvider(shutdown_on_exit=False).get_tracer("test").start_as_current_span("caller") as span:
        async with hedgerow.AsyncClient(gateway.process.spec.address) as client:
            answer = await client.ask("What?")
            with pytest.raises(hedgerow.InvalidArgument) as refused:
                await client.ask("What?", temperature=3)
    trace_id = format_trace_id(span.get_span_context().trace_id)
    assert (answer.trace_id, refused.value.trace_id) == (trace_id, trace_id)


async def test_every_refusal_has_a_trace_id(start: Start, llm: ScriptedLlm) -> None:
    gateway = await limited(start, llm)
    async with hedgerow.AsyncClient(gateway.process.spec.address, api_key="secret") as client:
        with pytest.raises(hedgerow.InvalidArgument) as invalid:
            await client.ask("What?", temperature=3)
    async with hedgerow.AsyncClient(gateway.process.spec.address, api_key="guessed") as client:
        with pytest.raises(hedgerow.Unauthenticated) as unknown:
            await client.ask("What?")
    for caught in (invalid, unknown):
        assert caught.value.trace_id is not None
        assert len(caught.value.trace_id) == 32
        assert int(caught.value.trace_id, 16)
        assert "trace_id" not in caught.value.metadata


@pytest.mark.usefixtures("patient")
async def test_the_fixed_text_of_a_late_answer_is_an_error_that_gives_nothing_of_it(
    gateway: HttpGateway, llm: ScriptedLlm
) -> None:
    llm.script = [Hold()]
    heard: list[str] = []
    async with hedgerow.AsyncClient(gateway.process.spec.address) as client:
        with pytest.raises(hedgerow.DeadlineExceeded, match="no text within 300 ms") as late:
            await client.ask("What?", budget_ms=300, on_token=heard.append)
        (result,) = [result async for _, result in client.batch(["What?"], budget_ms=300)]
    assert heard == []
    assert isinstance(result, hedgerow.DeadlineExceeded)
    for error in (late.value, result):
        assert error.reason == "BUDGET_TIMEOUT"
        assert error.trace_id is not None
        assert ("fallback", "template") in {(made.policy, made.action) for made in error.decisions}


@pytest.mark.usefixtures("patient")
async def test_the_fixed_text_is_an_answer_where_it_is_allowed(gateway: HttpGateway, llm: ScriptedLlm) -> None:
    async with hedgerow.AsyncClient(gateway.process.spec.address) as client:
        whole = await client.ask("What?", allow_fallback=True)
        llm.script = [*words("It is"), Hold()]
        budgets = budgets_ms()
        cut = await until(
            lambda: client.ask("What?", budget_ms=next(budgets), allow_fallback=True),
            holds=lambda answer: not answer.is_fallback,
        )
        llm.script = [Hold()]
        fixed = await client.ask("What?", budget_ms=300, allow_fallback=True)
        ((_, item),) = [pair async for pair in client.batch(["What?"], budget_ms=300, allow_fallback=True)]
    assert isinstance(item, hedgerow.Answer)
    kinds = [(answer.complete, answer.is_fallback) for answer in (whole, cut, fixed, item)]
    assert kinds == [(True, False), (False, False), (False, True), (False, True)]
    assert (cut.text, fixed.text) == ("It is", item.text)
