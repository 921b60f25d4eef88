"""Signs of life of an answer that has nothing else to send."""

from __future__ import annotations

import asyncio

import pytest

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.answer.event_writer import Send
from services.gateway.api.idempotency import with_heartbeats
from services.runtime.errors import InvalidInput
from tests.unit.gateway.api.test_ended_keys import BATCH, CALL, gateway
from tests.unit.gateway.reading import sent_by
from tests.unit.gateway.scripted import ScriptedLlm, text

pytestmark = pytest.mark.paused


async def test_signs_of_life_come_while_nothing_else_does():
    async def slow(send: Send) -> None:
        for pause in (0.1, 2.5, 0.1):
            await asyncio.sleep(pause)
            await send(pb.GenerateResponse(events=[pb.Event(delta=pb.TextDelta(text="a"))]))

    messages = [message async for message in sent_by(lambda send: with_heartbeats(slow, send, 1))]
    came = [message.events[0].WhichOneof("kind") for message in messages]
    assert came == ["delta", "heartbeat", "heartbeat", "delta", "delta"]


@pytest.mark.parametrize(("name", "value", "least"), [("heartbeat_ms", 0, 100), ("budget_ms", -1, 1)])
async def test_a_repeat_with_an_option_beyond_its_limits_is_refused(name: str, value: int, least: int):
    request = pb.GenerateRequest(model="m", messages=BATCH.requests[0].messages, idempotency_key="k")
    sent = list[pb.GenerateResponse]()

    async def send(message: pb.GenerateResponse) -> None:
        sent.append(message)
        assert len(sent) < 9

    with gateway(ScriptedLlm(text("Par"), None)) as servicer:
        first = asyncio.create_task(servicer.Generate(request, CALL, send))
        await asyncio.sleep(0.1)
        again = pb.GenerateRequest(**{name: value})
        again.MergeFrom(request)
        with pytest.raises(InvalidInput, match=f"{name}: at least {least}, got {value}"):
            await servicer.Generate(again, CALL, send)
        first.cancel()
        await asyncio.wait({first})
        servicer.drain()
