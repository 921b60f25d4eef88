"""Which callers get the plan and the ends of stages: those by gRPC, because the HTTP API shows neither."""

from __future__ import annotations

from functools import partial

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from tests.unit.gateway.api.test_ended_keys import CALL, gateway
from tests.unit.gateway.reading import sent_by
from tests.unit.gateway.scripted import ScriptedLlm, finish, text

pytestmark = pytest.mark.paused
TEXT, ALL = ["delta", "delta", "final"], ["accepted", "stage", "delta", "delta", "stage", "final"]


@pytest.mark.parametrize(
    ("way", "key", "kinds"), [("Generate", "", ALL), ("answer", "", TEXT), ("answer", "kept: any way to return", ALL)]
)
async def test_the_http_routes_get_text_and_the_last_event(way: str, key: str, kinds: list[str]) -> None:
    question = chat_pb2.Message(role=chat_pb2.ROLE_USER, content="Which city?")
    request = pb.GenerateRequest(model="m", messages=[question], idempotency_key=key)
    with gateway(ScriptedLlm(0.1, text("Par"), 0.1, finish("is."))) as served:
        messages = [message async for message in sent_by(partial(getattr(served, way), request, CALL))]
        served.drain()
    assert [event.WhichOneof("kind") for message in messages for event in message.events] == kinds
    assert {"router", "llm"} <= {stage.name for stage in messages[-1].events[-1].final.stages}
