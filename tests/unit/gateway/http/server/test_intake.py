"""Bodies share the room that there is for them, and what their headers say is decided before they are read."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from services.gateway.admission.control import CALL_S, READ_S, AdmissionControl
from services.gateway.admission.credential import Credential
from services.gateway.admission.identity import Tenant
from services.gateway.admission.intake import Intake
from services.gateway.admission.quota import Allowance
from services.gateway.config import GatewaySettings
from services.gateway.errors import BodiesWaiting
from services.gateway.http.endpoints.endpoint_admission import EndpointAdmission
from services.gateway.http.endpoints.responses import Responses
from services.gateway.http.errors import ErrorResponse
from services.gateway.http.server.endpoint import Endpoint, Serve
from services.gateway.http.server.exchange import Exchange
from services.gateway.http.stored_responses.memory import MemoryResponses
from services.gateway.http.stored_responses.store import Owner, StoredResponse
from services.gateway.policies.work_shares import WorkShares
from services.gateway.settings.http import HttpSettings
from services.gateway.settings.serving import ShedSettings
from services.runtime.policy.waiting_bytes import WaitingBytes
from tests.unit.gateway.http.endpoints.calling import SETTINGS
from tests.unit.gateway.http.wire import Wire

pytestmark = pytest.mark.paused

LIMITS = HttpSettings(max_body_bytes=1_024, max_text_body_bytes=1_024, body_ms=5_000)
SKIMMED_S = 1.1  # a client that is refused has so long to send the rest


def head(length: int, key: str, *headers: str) -> bytes:
    lines = ("POST / HTTP/1.1", "host: g", "content-type: application/json", f"content-length: {length}")
    return "\r\n".join((*lines, f"authorization: {key}", *headers, "", "")).encode()


class Scene:
    """A route, and connections to it by tenant."""

    def __init__(self, serve: Serve | None = None, **allowance: float):
        self.allowance, self.wires = Allowance(**allowance), list[Wire]()  # type: ignore[arg-type]
        self.work = WorkShares(lambda: 0.0, 0.85)
        self.admission = AdmissionControl(ShedSettings(), self.work)
        self.intake = Intake(WaitingBytes(2_048, BodiesWaiting), self.admission)
        servicer: Any = SimpleNamespace(authorize=self._authorize, ended=lambda *_: None)
        ways = (ErrorResponse.openai, servicer, LIMITS, False, False, False, self.intake)
        self.endpoint = Endpoint("/", serve or self._read, *ways)
        self.read = 0

    def _authorize(self, metadata: tuple[tuple[str, str], ...], peer: str) -> Credential:
        name = dict(metadata)["authorization"]
        tenant = Tenant(name, allowance=self.allowance)
        identity: Any = SimpleNamespace(version=0, tenant=lambda *_: tenant)
        return Credential(identity, metadata, peer)

    async def _read(self, exchange: Exchange) -> None:
        await exchange.body()
        self.read += 1
        await exchange.reply.whole(200, b"{}")

    async def send(self, key: str, length: int, sent: int, *headers: str) -> Wire:
        """A request of which the first `sent` bytes of a body come."""
        self.wires.append(wire := Wire(self.endpoint, LIMITS))
        await wire.send(head(length, key, *headers), *([b"x" * sent] if sent else []))
        return wire

    async def end(self) -> None:
        for wire in self.wires:
            await wire.end()


async def test_bodies_that_are_being_read_share_their_room_and_one_tenant_has_half_of_it() -> None:
    scene = Scene()
    held = [await scene.send("a", 1_000, 500), await scene.send("a", 1_000, 500)]
    late = await scene.send("a", 1_000, 500)
    await asyncio.sleep(SKIMMED_S)
    assert late.statuses == [503]
    assert b"retry-after: 1\r\n" in late.transport.written
    assert b'"code":"bodies_waiting"' in late.transport.written
    other = await scene.send("b", 500, 500)
    assert other.statuses == [200]
    await held[0].end()
    await held[1].send(b"x" * 500)
    assert held[1].statuses == [200]
    await scene.end()


async def test_a_body_gives_its_room_back_when_it_is_refused_left_late_or_admitted() -> None:
    scene = Scene()
    await (await scene.send("a", 1_000, 900)).end()  # the client leaves
    late = await scene.send("a", 1_000, 900)
    await asyncio.sleep(LIMITS.body_ms / 1000 + SKIMMED_S)
    assert late.statuses == [408]
    refused = await scene.send("a", 1_020, 0, "transfer-encoding: chunked")  # which is no request
    assert refused.statuses == [400]
    for _ in range(3):
        assert (await scene.send("a", 1_000, 1_000)).statuses == [200]
    assert not scene.intake.waiting._held
    await scene.end()


async def test_the_bytes_of_a_body_count_as_its_tenants_work_whatever_they_are() -> None:
    """A form, and what came of a body before its client left, as well as JSON."""
    scene = Scene()
    await scene.send("a", 1_000, 1_000)
    await (await scene.send("b", 1_000, 1_000)).end()
    for _ in range(2):
        await (await scene.send("c", 1_000, 500)).end()
    scene.admission.spend(Tenant("idle", allowance=scene.allowance), CALL_S + 1_000 * READ_S)
    shares = [scene.work.share(name) for name in ("a", "b", "idle")]
    assert shares == [pytest.approx(shares[0])] * 3
    assert scene.work.share("c") > shares[0]
    await scene.end()


async def test_a_body_takes_no_room_any_more_once_its_request_is_admitted() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.body()
        if exchange.headers.get("x-admitted"):
            exchange.admitted()
        await asyncio.sleep(60)

    scene = Scene(answer)
    for _ in range(4):
        assert (await scene.send("a", 1_000, 1_000, "x-admitted: 1")).statuses == []
    assert (await scene.send("a", 1_000, 1_000)).statuses == []
    assert (await scene.send("a", 1_000, 1_000)).statuses == [503]
    await scene.end()


async def test_a_tenant_over_its_quota_is_refused_by_the_headers() -> None:
    scene = Scene(concurrency=1)
    reading = await scene.send("a", 1_000, 10)
    over = await scene.send("a", 1_000, 0, "expect: 100-continue")
    assert over.statuses == [429]
    assert b'"code":"rate_limit_exceeded"' in over.transport.written
    assert (await scene.send("a", 10, 10, "idempotency-key: k")).statuses == [200]  # its answer may hold a slot
    assert (await scene.send("b", 10, 10)).statuses == [200]
    await reading.send(b"x" * 990)
    assert (await scene.send("a", 10, 10)).statuses == [200]
    await scene.end()


async def test_a_tenant_over_its_rate_is_refused_by_the_headers() -> None:
    scene = Scene(requests_per_s=1, requests_burst=1)
    assert (await scene.send("a", 10, 10)).statuses == [200]  # to read a body takes nothing of it
    scene.admission._quotas.reserve("a", scene.allowance, 0)
    over = await scene.send("a", 1_000, 0, "expect: 100-continue")
    assert over.statuses == [429]
    assert b"x-ratelimit-remaining-requests: 0" in over.transport.written
    await scene.end()


def test_there_is_room_for_at_least_two_bodies_or_messages_of_the_largest_size() -> None:
    for http, message_bytes in (({}, 4_194_304), ({"max_body_bytes": 2_000_000}, 40_000_000)):
        settings = GatewaySettings(llm_addresses={"m": "127.0.0.1:1"}, http=http, max_message_bytes=message_bytes)
        assert settings.waiting_bytes >= 2 * max(settings.http.max_body_bytes, message_bytes)


class SlowStore(MemoryResponses):
    """Returns a response once `may_end` is set."""

    def __init__(self) -> None:
        super().__init__(60, 10_000, 10_000)
        self.may_end, self.fetched = asyncio.Event(), 0

    async def get(self, owner: Owner, response_id: str) -> bytes | None:
        self.fetched += 1
        await self.may_end.wait()
        return await super().get(owner, response_id)


async def test_a_stored_response_takes_the_room_of_a_body_before_it_is_fetched() -> None:
    store = SlowStore()
    stored = StoredResponse({"id": "resp_1"}, [{"role": "user", "content": "x" * 800}])
    for tenant in "ab":
        await store.put(Owner(tenant), "resp_1", stored.serialize())

    async def serve(exchange: Exchange) -> None:
        exchange.scope["path_params"] = {"id": "resp_1"}
        await Responses(EndpointAdmission(SETTINGS, scene.admission), store).input_items(exchange)

    scene = Scene(serve)
    first, second, other = [await scene.send(tenant, 0, 0) for tenant in "aab"]
    assert (store.fetched, second.statuses) == (2, [503])
    assert b'"code":"bodies_waiting"' in second.transport.written
    store.may_end.set()
    await asyncio.sleep(SKIMMED_S)
    assert (first.statuses, other.statuses) == ([200], [200])
    again = await scene.send("a", 0, 0)
    await asyncio.sleep(SKIMMED_S)
    assert again.statuses == [200]
    await scene.end()
