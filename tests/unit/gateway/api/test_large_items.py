"""An item of a batch is checked where a single request is: beside the event loop when it is large."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar
from unittest.mock import AsyncMock

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.api import preparation
from tests.unit.gateway.api.test_ended_keys import CALL, gateway
from tests.unit.gateway.scripted import ScriptedLlm, finish, large_asides

T = TypeVar("T")
pytestmark = pytest.mark.paused
_SHORT = chat_pb2.Message(role=chat_pb2.ROLE_USER, content="Hi.")
_IN_PARTS = chat_pb2.Message(role=chat_pb2.ROLE_USER, parts=[chat_pb2.Part(text="a")] * 256)


async def test_large_items_of_a_batch_leave_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    large = large_asides(monkeypatch, preparation)
    conversations = [[_SHORT], [_SHORT] * 1_100, [_IN_PARTS] * 10]
    batch = pb.GenerateBatchRequest(requests=[pb.GenerateRequest(model="m", messages=each) for each in conversations])
    schema = '{"title":"%s"}' % ("t" * 30_000)
    tools = [chat_pb2.Tool(name=name, parameters=schema) for name in ("f", "g", "h")]
    batch.requests.add(model="m", messages=[_SHORT], tools=tools)
    with gateway(ScriptedLlm(finish("Yes."))) as served:
        results = [result async for result in served.GenerateBatch(batch, CALL)]
    assert large == [False, True, True, True]
    assert len(results) == len(batch.requests)


async def test_the_check_of_a_large_request_is_a_part_of_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may wait for the large requests of others."""
    limits = list[float | None]()

    def spend_budget() -> None:
        time.sleep(0.25)  # on the real clock, which budgets use

    async def aside(tenant: str, size: int, work: Callable[[], T], within_s: float | None = None) -> T:
        limits.append(within_s)
        spend_budget()
        return work()

    monkeypatch.setattr(preparation, "aside", aside)
    model, send = ScriptedLlm(finish("Yes.")), AsyncMock()
    request = pb.GenerateRequest(model="m", messages=[_SHORT], budget_ms=200)
    with gateway(model) as served:
        await served.Generate(request, CALL, send)
    assert not model.calls
    assert send.await_args.args[0].events[-1].final.cut.what == "budget"
    assert limits[0] is not None
    assert limits[0] <= 0.2
