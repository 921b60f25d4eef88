"""Signs of life of an answer that has nothing else to send."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.answer.event_writer import Send
from services.gateway.api.idempotency import with_heartbeats
from services.runtime.errors import InvalidInput
from tests.unit.gateway.api.test_ended_keys import BATCH, CALL, gateway
from tests.unit.gateway.api.test_idempotency import Scene
from tests.unit.gateway.reading import sent_by
from tests.unit.gateway.scripted import ScriptedLlm, text

pytestmark = pytest.mark.paused


def beating(give: Callable[[Send], Awaitable[object]], every_s: float) -> AsyncGenerator[pb.GenerateResponse, None]:
    return sent_by(lambda send: with_heartbeats(give, send, every_s))


async def test_signs_of_life_come_while_nothing_else_does():
    async def slow(send: Send) -> None:
        for pause in (0.1, 2.5, 0.1):
            await asyncio.sleep(pause)
            await send(pb.GenerateResponse(events=[pb.Event(delta=pb.TextDelta(text="a"))]))

    came = [message.events[0].WhichOneof("kind") async for message in beating(slow, 1)]
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


async def test_a_client_that_leaves_between_heartbeats_leaves_the_answer():
    left = asyncio.Event()

    async def silent(send: Send) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            left.set()

    messages = beating(silent, 1)
    await anext(messages)
    await messages.aclose()
    assert left.is_set()


async def test_a_client_that_leaves_after_a_message_leaves_the_answer_at_once():
    scene = Scene("a", "b")
    messages = beating(scene._give, 5)
    await anext(messages)
    await messages.aclose()
    assert scene.left == 1
