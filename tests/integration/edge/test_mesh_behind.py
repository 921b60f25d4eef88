"""An edge and the gateways behind it: their identities, and how they come and go."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import httpx
import pytest
import pytest_asyncio

import hedgerow
from launcher import envoy
from tests.certificates import Certificates, mutual
from tests.integration.edge.calls import ask, mutual_tls, refusal, seen, web_call
from tests.integration.edge.running import Edge, Gateway, Issuer, edge_before, gateway
from tests.integration.scripted import Hold, Refusal
from tests.integration.scripted_gateway import answer
from tests.models import MODELS
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")
_SKEW_S = 60  # for so long after a token has expired, the edge and the gateway take it


async def test_envoy_and_the_mesh_authenticate_each_other(certificates: Certificates, tmp_path: Path) -> None:
    issued = certificates.authority.issue("gateway", days=1)
    credentials = grpc.ssl_server_credentials(
        [(issued.key, issued.certificate)], certificates.authority.pem(), require_client_auth=True
    )
    async with gateway(credentials) as scripted:
        scripted.script = answer("Par", "is.")
        running = edge_before(tmp_path, [scripted.target], {}, **mutual_tls(certificates))
        async with running as edge, grpc.aio.insecure_channel(edge.address) as channel:
            assert await ask(channel) == "Paris."
            assert scripted.peer == "spiffe://hedgerow/edge"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def real(
    issuer: Issuer, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Edge]:
    """An edge before the real gateway, which has an audio service and no model."""
    folder = tmp_path_factory.mktemp("real")
    alone = {"cache_address": "", "router_address": "", "llm_addresses": '{"m": "127.0.0.1:1"}'}
    alone |= {"ready__models": "0", "ready__unreached_ms": "0"}
    tenants = json.dumps({"acme": {"requests_per_s": 0.001, "requests_burst": 1}})
    async with AsyncExitStack() as stack:
        audio = await mutual(stack, certificates, folder, "audio", model=str(MODELS / "demo-whisper"))
        known = {"tenants": tenants, "audio_address": audio.spec.address}
        gateway = await mutual(stack, certificates, folder, "gateway", **known, **alone)
        settings = {"jwt": issuer.written(folder)}
        before = edge_before(folder, [gateway.spec.address], settings, **mutual_tls(certificates))
        yield await stack.enter_async_context(before)


async def test_the_real_gateway_knows_the_tenant_of_a_token(real: Edge, issuer: Issuer) -> None:
    reasons = [await reason(real, issuer.token(tenant=name)) for name in ("acme", "acme", "other", "other")]
    assert reasons == ["MODEL_UNAVAILABLE", "QUOTA_EXCEEDED", "MODEL_UNAVAILABLE", "MODEL_UNAVAILABLE"]


async def test_a_conversation_ends_with_its_token(real: Edge, issuer: Issuer) -> None:
    for seconds in (3, 10, 40):  # a busy machine may begin a conversation only after the first
        ends = int(time.time()) + seconds
        token = issuer.token(tenant="other", exp=ends - _SKEW_S)
        async with hedgerow.AsyncClient(real.address, api_key=token) as client:
            with pytest.raises(hedgerow.HedgerowError) as ended:
                async for _ in client.converse(_silence()):
                    pass
        if ended.value.reason == "CREDENTIAL_EXPIRED":
            break
    assert ended.value.reason == "CREDENTIAL_EXPIRED"
    assert time.time() >= ends


async def _silence() -> AsyncIterator[bytes]:
    while True:
        yield bytes(3_200)
        await asyncio.sleep(0.1)


async def reason(edge: Edge, token: str) -> str:
    """Why a question is refused."""
    async with hedgerow.AsyncClient(edge.address, api_key=token) as client:
        with pytest.raises(hedgerow.HedgerowError) as refused:
            await client.ask("…")
    return refused.value.reason


async def test_no_answer_puts_a_gateway_out_of_service(scripted: Gateway, tmp_path: Path) -> None:
    async with gateway() as other, edge_before(tmp_path, [scripted.target, other.target], {}) as edge:
        async with grpc.aio.insecure_channel(edge.address) as channel:
            for code in ("DEADLINE_EXCEEDED", "UNAVAILABLE"):
                scripted.script = other.script = [Refusal(code, "…", "WHATEVER")]
                assert {(await refusal(channel)).code().name for _ in range(20)} == {code}
        async with httpx.AsyncClient(base_url=f"http://{edge.admin}", timeout=20) as admin:
            stats = (await admin.get("/stats?filter=cluster.gateway.outlier_detection.ejections_enforced_total")).text
    assert stats == "cluster.gateway.outlier_detection.ejections_enforced_total: 0\n"


async def test_a_drained_edge_finishes_answers_and_becomes_unready(behind: Gateway, tmp_path: Path) -> None:
    behind.requests.clear()
    behind.script = [hold := Hold(), *answer("Par", "is.")]
    async with edge_before(tmp_path, [behind.target], {}) as edge, AsyncExitStack() as stack:
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(edge.address))
        browser = await stack.enter_async_context(httpx.AsyncClient(base_url=f"http://{edge.address}", timeout=20))
        answered = asyncio.create_task(ask(channel))
        await seen(behind)
        drained = asyncio.create_task(envoy.drain(edge.admin, timeout_s=30))
        await until(lambda: browser.get("/healthz"), holds=lambda page: page.status_code != 200)
        assert not drained.done()
        hold.release.set()
        assert await answered == "Paris."
        assert await drained


async def test_a_drain_ends_with_its_time_and_calls_in_flight_then_get_an_error(
    behind: Gateway, tmp_path: Path
) -> None:
    behind.script, behind.cancelled = [Hold()], asyncio.Event()
    behind.requests.clear()
    async with edge_before(tmp_path, [behind.target], {}) as edge, grpc.aio.insecure_channel(edge.address) as channel:
        waiting = asyncio.create_task(refusal(channel, timeout_s=60))
        await seen(behind)
        assert not await envoy.drain(edge.admin, timeout_s=0.2)
        await edge.process.stop()
        assert (await waiting).code() is grpc.StatusCode.UNAVAILABLE
        async with asyncio.timeout(20):
            await behind.cancelled.wait()


async def test_a_gateway_that_stops_costs_no_call_and_without_gateways_calls_are_unavailable(tmp_path: Path) -> None:
    async with AsyncExitStack() as first, AsyncExitStack() as second:
        goes, stays = [await stack.enter_async_context(gateway()) for stack in (first, second)]
        goes.script = stays.script = answer("Par", "is.")
        async with edge_before(tmp_path, [goes.target, stays.target], {}) as edge:
            async with grpc.aio.insecure_channel(edge.address) as channel:
                while not (goes.requests and stays.requests):
                    await ask(channel)
                await first.aclose()
                assert [await ask(channel) for _ in range(20)] == ["Paris."] * 20
                await second.aclose()
                gone = await refusal(channel)
            async with httpx.AsyncClient(base_url=f"http://{edge.address}", timeout=20) as browser:
                page = await browser.post(**web_call())
    assert gone.code() is grpc.StatusCode.UNAVAILABLE
    assert page.headers["grpc-status"] == str(grpc.StatusCode.UNAVAILABLE.value[0])
