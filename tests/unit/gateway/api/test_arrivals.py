"""Limits on the bytes of gRPC calls that are not admitted yet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.trace import INVALID_SPAN

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.control import AdmissionControl
from services.gateway.admission.identity import Tenant
from services.gateway.admission.intake import Intake, Limits
from services.gateway.admission.quota import Allowance, QuotaExceeded
from services.gateway.api.arrivals import Arrivals, CallArrival
from services.gateway.config import GatewaySettings
from services.gateway.errors import BodiesWaiting
from services.gateway.policies.work_shares import WorkShares
from services.gateway.settings.serving import ShedSettings
from services.runtime.errors import InvalidInput
from services.runtime.policy.waiting_bytes import WaitingBytes
from services.runtime.rpc.arrival import WINDOW_BYTES
from tests.cancelling import Work, cancelled_at_every_await

pytestmark = pytest.mark.paused

MOST, ROOM = 4 * WINDOW_BYTES, 16 * WINDOW_BYTES  # of a message, and of all: two large ones of one tenant at once
SETTINGS = GatewaySettings(llm_addresses={"m": "127.0.0.1:1"}, max_message_bytes=MOST)
METHODS = pb.DESCRIPTOR.services_by_name["GatewayService"].methods_by_name
MESSAGE = b"x" * 10


class Scene:
    """Requests of tenants."""

    def __init__(self, limits: Limits | None = None, **allowance: float):
        self.allowance = Allowance(**allowance)  # type: ignore[arg-type]
        self.admission = AdmissionControl(ShedSettings(), WorkShares(lambda: 0.0, 0.85))
        self.intake = Intake(WaitingBytes(ROOM, BodiesWaiting), self.admission, limits or Limits())
        self.kept: Any = SimpleNamespace(unread=lambda _: False)
        self.arrivals = Arrivals(SETTINGS, self.intake, self.kept)

    def arrival(self, tenant: str, method: str = "Generate") -> CallArrival:
        credential: Any = SimpleNamespace(tenant=Tenant(tenant, allowance=self.allowance))
        return self.arrivals.of(METHODS[method], credential, INVALID_SPAN)

    @property
    def held(self) -> dict[str, int]:
        return self.intake.waiting._held


async def late() -> bytes:
    await asyncio.sleep(30)
    return MESSAGE


async def soon() -> bytes:
    return MESSAGE


async def never() -> bytes:
    raise AssertionError("a refused body was read")


async def test_a_message_has_room_for_a_window_then_for_the_largest_and_then_for_what_it_is_until_it_is_admitted() -> (
    None
):
    scene = Scene()
    reading = asyncio.create_task((arrival := scene.arrival("a")).one(late))
    await asyncio.sleep(0.01)
    assert scene.held == {"a": WINDOW_BYTES}
    await asyncio.sleep(0.1)
    assert scene.held == {"a": MOST}
    assert await reading == MESSAGE
    assert scene.held == {"a": len(MESSAGE)}
    arrival.admitted()
    arrival.admitted()
    assert not scene.held


async def test_a_message_that_is_not_whole_soon_is_refused_where_there_is_no_room_for_the_largest() -> None:
    scene = Scene()
    scene.intake.waiting.take("b", ROOM // 2)
    scene.intake.waiting.take("c", ROOM // 4)
    whole = scene.arrival("a")
    assert await whole.one(soon) == MESSAGE
    whole.admitted()
    with pytest.raises(BodiesWaiting) as refused:
        await scene.arrival("a").one(late)
    assert refused.value.retry_delay_s == 1.0
    assert "a" not in scene.held
    await asyncio.sleep(60)  # nothing is cancelled any more


async def test_a_large_message_that_came_with_its_headers_has_room_for_what_it_is() -> None:
    scene = Scene()

    async def read() -> bytes:
        return b"\xff" * (WINDOW_BYTES + 1)

    arrival = scene.arrival("a")
    with pytest.raises(InvalidInput):  # it is no message
        await arrival.one(read)
    assert scene.held == {"a": WINDOW_BYTES + 1}
    arrival.admitted()
    scene.intake.waiting.take("b", ROOM // 2)
    scene.intake.waiting.take("c", ROOM // 2 - WINDOW_BYTES)
    with pytest.raises(BodiesWaiting):
        await scene.arrival("a").one(read)


async def test_messages_that_came_with_their_headers_wait_for_their_turn_and_none_is_refused() -> None:
    scene = Scene()
    arrivals = [scene.arrival("a") for _ in range(100)]
    assert await asyncio.gather(*(arrival.one(soon) for arrival in arrivals)) == [MESSAGE] * 100
    for arrival in arrivals:
        arrival.admitted()
    assert not scene.held


async def test_a_tenant_over_its_quota_is_refused_before_its_message_is_read() -> None:
    scene = Scene(concurrency=1)
    reading = asyncio.create_task(scene.arrival("a").one(late))
    await asyncio.sleep(0.1)
    with pytest.raises(QuotaExceeded, match="1 of 1 requests at once"):
        await scene.arrival("a").one(never)
    assert await scene.arrival("b").one(soon) == MESSAGE
    assert await scene.arrival("a", "GenerateBatch").one(soon) == MESSAGE  # its items wait for their slots
    scene.kept.unread = lambda tenant: tenant == "a"
    assert await scene.arrival("a").one(soon) == MESSAGE  # it may be for an answer that has the slot
    await reading
    scene.kept.unread = lambda _: False
    assert await scene.arrival("a").one(soon) == MESSAGE


async def test_a_tenant_over_its_rate_is_refused_before_its_message_is_read() -> None:
    scene = Scene(requests_per_s=1, requests_burst=1)
    assert await scene.arrival("a").one(soon) == MESSAGE  # to read it takes nothing of the rate
    scene.admission._quotas.reserve("a", scene.allowance, 0)
    for method in ("Generate", "ReportWrong"):
        with pytest.raises(QuotaExceeded, match="1 requests a second"):
            await scene.arrival("a", method).one(never)


async def test_a_message_with_too_many_elements_is_refused_before_it_becomes_objects() -> None:
    scene = Scene(Limits(values=1_000, items=100))

    async def read() -> bytes:
        return pb.GenerateRequest(messages=[chat_pb2.Message()] * 257).SerializeToString()

    with pytest.raises(InvalidInput, match="messages: at most 256, got 257 or more"):
        await (arrival := scene.arrival("a")).one(read)
    arrival.admitted()  # the call is over
    assert not scene.held


async def test_the_first_message_of_a_stream_is_held_and_all_are_counted() -> None:
    scene = Scene(Limits(values=1_000, items=100))
    many = pb.ConverseRequest(options=pb.ConverseOptions(request=pb.GenerateRequest(end_user=["a"] * 101)))

    async def messages() -> AsyncIterator[bytes]:
        yield MESSAGE
        yield MESSAGE
        yield many.SerializeToString()

    came = (arrival := scene.arrival("a", "Converse")).all(messages())
    assert await anext(came) == MESSAGE
    assert scene.held == {"a": len(MESSAGE)}
    arrival.admitted()
    assert await anext(came) == MESSAGE
    assert not scene.held
    with pytest.raises(InvalidInput, match="end_user: at most 100, got 101 or more"):
        await anext(came)


async def test_a_stream_without_a_message_holds_nothing() -> None:
    async def messages() -> AsyncIterator[bytes]:
        for never in ():
            yield never

    scene = Scene()
    assert [raw async for raw in scene.arrival("a", "Converse").all(messages())] == []
    assert not scene.held


@cancelled_at_every_await(awaits=3)
async def test_a_client_that_leaves_while_its_message_is_read_holds_no_bytes() -> Work:
    scene = Scene(concurrency=3)
    scene.intake.waiting.take("b", ROOM)
    asyncio.get_running_loop().call_later(0.5, scene.intake.waiting.give_back, "b", ROOM)
    arrival = scene.arrival("a")

    async def work() -> None:
        try:
            await arrival.one(late)
        finally:
            arrival.admitted()

    yield work()
    await asyncio.sleep(1.0)
    assert not scene.held
    assert not any(account.in_flight for account in scene.admission._quotas._accounts.values())
