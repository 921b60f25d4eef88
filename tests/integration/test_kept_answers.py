"""Answers that outlast a connection: a real gateway behind a bad network, a scripted model, our SDK and plain HTTP."""

from __future__ import annotations

import asyncio

import pytest

import hedgerow
from tests.fault.proxy import FaultProxy
from tests.integration.http_gateway import HttpGateway
from tests.integration.scripted import Hold
from tests.integration.scripted_llm import ScriptedLlm, end, words
from tests.waiting import until

FORM = '{"type": "object"}'  # no other model could go on from the middle of it


async def test_a_client_that_loses_its_connection_reads_on_where_it_was(gateway: HttpGateway, llm: ScriptedLlm) -> None:
    before, hold = len(llm.requests), Hold()
    llm.script = [*words('{"a"', ": "), hold, *words("1}"), end()]
    async with (
        FaultProxy(gateway.process.spec.address) as proxy,
        hedgerow.AsyncClient(proxy.address) as client,
        client.stream("As JSON?", json_schema=FORM, idempotency_key="order 7", single_attempt=True) as stream,
    ):
        kinds, text = [], ""
        async for event in stream:
            kinds.append(type(event).__name__)
            if isinstance(event, hedgerow.TextDelta):
                text += event.text
                if text == '{"a": ':
                    proxy.cut()
                    hold.release.set()
    assert (text, event.answer.text, event.answer.finish_reason) == ('{"a": 1}', '{"a": 1}', "stop")
    assert len(llm.requests) - before == 1
    assert (kinds.count("Accepted"), kinds.count("Final")) == (1, 1)


async def test_a_client_with_less_time_than_the_answer_waits_for_its_own_budget_alone(
    gateway: HttpGateway, llm: ScriptedLlm
) -> None:
    before, hold = len(llm.requests), Hold()
    llm.script = [*words("Par"), hold, *words("is."), end()]
    async with hedgerow.AsyncClient(gateway.process.spec.address) as client:
        first = asyncio.create_task(client.ask("Long?", idempotency_key="long", budget_ms=60_000))
        await until(lambda: len(llm.requests) > before)
        with pytest.raises(hedgerow.DeadlineExceeded) as late:
            await client.ask("Long?", idempotency_key="long", budget_ms=200)
        hold.release.set()
        assert late.value.reason == "TOO_LATE"  # the gateway's, before the SDK's own deadline
        assert (await first).text == "Paris."
