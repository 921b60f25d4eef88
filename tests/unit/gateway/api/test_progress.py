"""Which callers get the plan and the ends of stages: those by gRPC, because the HTTP API shows neither."""

from __future__ import annotations

from functools import partial

import pytest
from opentelemetry.trace import INVALID_SPAN

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.control import AdmissionControl
from services.gateway.admission.identity import Identity
from services.gateway.admission.intake import Intake
from services.gateway.api.servicer import GatewayServicer
from services.gateway.config import GatewaySettings
from services.gateway.errors import BodiesWaiting
from services.gateway.policies.work_shares import WorkShares
from services.gateway.prefix_warmup import PrefixWarmup
from services.gateway.settings.serving import ShedSettings
from services.runtime.deadline import Deadline
from services.runtime.policy.waiting_bytes import WaitingBytes
from services.runtime.rpc.boundary import Call
from tests.clock import loop_clock
from tests.unit.gateway.answer.scene import Scene
from tests.unit.gateway.reading import sent_by
from tests.unit.gateway.scripted import ScriptedLlm, ScriptedRoutes, finish, text

pytestmark = pytest.mark.paused
SETTINGS = GatewaySettings(llm_addresses={"m": "127.0.0.1:1"})
CALL = Call((), Deadline.never(), INVALID_SPAN)
TEXT, ALL = ["delta", "delta", "final"], ["accepted", "stage", "delta", "delta", "stage", "final"]


def gateway() -> GatewayServicer:
    """A gateway before one model, which writes `Paris.` in two pieces."""
    scene = Scene(m=ScriptedLlm(0.1, text("Par"), 0.1, finish("is.")))
    identity = Identity({}, None, anonymous=True, clock=loop_clock)
    admission = AdmissionControl(ShedSettings(), WorkShares(lambda: 0.0, 0.85))
    intake = Intake(WaitingBytes(1_000_000, BodiesWaiting), admission)
    warming = PrefixWarmup(SETTINGS, scene.fleet, ScriptedRoutes(names=("m",)), identity, loop_clock)
    return GatewayServicer(SETTINGS, scene.backends, scene.media, identity, intake, warming)


@pytest.mark.parametrize(
    ("way", "key", "kinds"), [("Generate", "", ALL), ("answer", "", TEXT), ("answer", "kept: any way to return", ALL)]
)
async def test_the_http_routes_get_text_and_the_last_event(way: str, key: str, kinds: list[str]) -> None:
    question = chat_pb2.Message(role=chat_pb2.ROLE_USER, content="Which city?")
    request = pb.GenerateRequest(model="m", messages=[question], idempotency_key=key)
    messages = [message async for message in sent_by(partial(getattr(gateway(), way), request, CALL))]
    assert [event.WhichOneof("kind") for message in messages for event in message.events] == kinds
    assert {"router", "llm"} <= {stage.name for stage in messages[-1].events[-1].final.stages}
