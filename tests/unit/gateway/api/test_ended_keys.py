"""Batches and warm-ups end with the key of their caller, also while their model is silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from opentelemetry.trace import INVALID_SPAN

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.control import AdmissionControl
from services.gateway.admission.identity import Identity
from services.gateway.admission.intake import Intake
from services.gateway.api.servicer import GatewayServicer
from services.gateway.config import GatewaySettings
from services.gateway.errors import BodiesWaiting, KeyExpired
from services.gateway.policies.work_shares import WorkShares
from services.gateway.prefix_warmup import PrefixWarmup
from services.gateway.settings.serving import ShedSettings
from services.gateway.settings.tenants import TenantSettings
from services.runtime.deadline import Deadline
from services.runtime.policy.waiting_bytes import WaitingBytes
from services.runtime.rpc.boundary import Call
from tests.clock import loop_clock
from tests.keys import digest
from tests.unit.gateway.answer.scene import Scene
from tests.unit.gateway.scripted import ScriptedLlm, ScriptedRoutes, finish, text

pytestmark = pytest.mark.paused

SETTINGS = GatewaySettings(llm_addresses={"m": "127.0.0.1:1"})
CALL = Call((("authorization", "Bearer short"),), Deadline.never(), INVALID_SPAN)
EXPIRES_S, NOTED_S, LOOKED_S = 0.3, 0.4, 0.5  # a key; the gateway has noted it; a call's first look
BATCH = pb.GenerateBatchRequest(
    requests=[
        pb.GenerateRequest(model="m", messages=[chat_pb2.Message(role=chat_pb2.ROLE_USER, content=f"Item {number}?")])
        for number in range(6)  # two more than begin at once
    ]
)


@contextmanager
def gateway(model: ScriptedLlm) -> Iterator[GatewayServicer]:
    """A gateway before one model, whose only key expires soon."""
    began = loop_clock()
    expires = datetime.fromtimestamp(began + EXPIRES_S, UTC).isoformat()
    tenants = {
        "a": TenantSettings.model_validate({"keys": [{"sha256": digest("short"), "expires": expires}], "warm": True})
    }
    identity, scene = Identity(tenants, None, clock=loop_clock), Scene(m=model)
    intake = Intake(
        WaitingBytes(1_000_000, BodiesWaiting), AdmissionControl(ShedSettings(), WorkShares(lambda: 0.0, 0.85))
    )
    warming = PrefixWarmup(SETTINGS, scene.fleet, ScriptedRoutes(names=("m",)), identity, loop_clock)
    noting = asyncio.create_task(identity.run())
    try:
        yield GatewayServicer(SETTINGS, scene.backends, scene.media, identity, intake, warming)
    finally:
        noting.cancel()


async def sent(responses: AsyncGenerator[Any, None]) -> tuple[list[Any], bool]:
    """The responses, none of them after the gateway has noted the end of the key, and whether that ended the call."""
    until_then, began = list[Any](), loop_clock()
    try:
        async with aclosing(responses):
            async for response in responses:
                assert loop_clock() - began <= NOTED_S
                until_then.append(response)
    except KeyExpired:
        assert loop_clock() - began <= NOTED_S + LOOKED_S
        return until_then, True
    return until_then, False


async def test_a_batch_whose_model_is_silent_ends_with_its_key() -> None:
    with gateway(model := ScriptedLlm(text("Par"), None)) as servicer:
        assert await sent(servicer.GenerateBatch(BATCH, CALL)) == ([], True)
    assert len(model.calls) == len(BATCH.requests)
    assert all(call.closed for call in model.calls)


@pytest.mark.parametrize("took_s", [0.1, 0.39, NOTED_S, 0.41, 0.49, LOOKED_S, 0.51])
async def test_items_that_end_about_when_their_key_does_have_their_answers_before_and_none_after(took_s: float) -> None:
    with gateway(ScriptedLlm(text("Par"), took_s, finish("is."))) as servicer:
        results, ended = await sent(servicer.GenerateBatch(BATCH, CALL))
    assert ended is (took_s >= NOTED_S)
    assert [result.final.text for result in results] == ([] if ended else ["Paris."] * len(BATCH.requests))


async def test_a_warm_up_whose_model_is_silent_ends_with_its_key() -> None:
    with gateway(model := ScriptedLlm(text("Par"), None)) as servicer:
        (step,), ended = await sent(servicer.Warm(pb.WarmRequest(), CALL))
    assert (step.kind, ended) == (pb.WARM_KIND_CONNECTION, True)
    (call,) = model.calls
    assert call.closed
