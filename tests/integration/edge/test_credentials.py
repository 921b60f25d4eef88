"""Callers without a key or with a token that does not hold do not come in; TLS and traces."""

from __future__ import annotations

import asyncio
import ssl
import time
from contextlib import AsyncExitStack, suppress
from typing import Any

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from launcher.certificate_authority import Authority
from tests.certificates import Certificates
from tests.integration.collector import Collector
from tests.integration.edge.calls import CHECKS, GENERATE, ORIGIN, ask, bearer, refusal, secure, seen, web_call
from tests.integration.edge.running import Edge, Gateway, Issuer
from tests.integration.scripted import Hold
from tests.integration.scripted_gateway import answer
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("metadata", [(), (("authorization", "Basic sesame"),), (("authorization", ""),)])
async def test_a_caller_without_a_key_is_refused_before_any_gateway(
    closed: Edge, scripted: Gateway, metadata: Any
) -> None:
    async with grpc.aio.insecure_channel(closed.address) as channel:
        refused = await refusal(channel, metadata)
        assert refused.code() is grpc.StatusCode.UNAUTHENTICATED
        assert refused.details() == "authorization: a bearer token is required"
        with pytest.raises(grpc.aio.AioRpcError) as unseen:
            await channel.unary_unary("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")(b"")
        assert unseen.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert scripted.metadata == {}
        assert await ask(channel, (("authorization", "bearer sesame"),)) == "Paris."


async def test_a_page_without_a_key_can_read_that_it_needs_one(closed: Edge, scripted: Gateway) -> None:
    wants = {"origin": ORIGIN, "access-control-request-method": "POST"}
    async with httpx.AsyncClient(base_url=f"http://{closed.address}", timeout=20) as browser:
        may = await browser.options(GENERATE, headers=wants)
        refused = await browser.post(**web_call())
    assert may.headers["access-control-allow-origin"] == ORIGIN
    assert refused.headers["access-control-allow-origin"] == ORIGIN
    assert refused.headers["grpc-status"] == str(grpc.StatusCode.UNAUTHENTICATED.value[0])
    assert scripted.metadata == {}


async def test_any_caller_may_check_health_and_none_may_watch_it(closed: Edge) -> None:
    async with grpc.aio.insecure_channel(closed.address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        state = await stub.Check(health_pb2.HealthCheckRequest(), timeout=20)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Watch(health_pb2.HealthCheckRequest(), timeout=20).read()
    assert state.status == health_pb2.HealthCheckResponse.SERVING
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED  # which gRPC's clients take for healthy


async def test_a_health_check_without_a_message_takes_no_slot(closed: Edge) -> None:
    async with grpc.aio.insecure_channel(closed.address) as channel, AsyncExitStack() as stack:
        begin = channel.stream_stream("/grpc.health.v1.Health/Check")
        for _ in range(2 * CHECKS):
            stack.callback((call := begin()).cancel)
            await call.wait_for_connection()
        stub: Any = health_pb2_grpc.HealthStub(channel)
        for _ in range(3):
            assert (await stub.Check(health_pb2.HealthCheckRequest(), timeout=20)).status


async def test_a_token_names_the_tenant_despite_forged_headers(
    guarded: Edge, scripted: Gateway, issuer: Issuer, authority: Authority
) -> None:
    forged = (("x-hedgerow-tenant", "evil"), ("x-hedgerow-expires", "99999999999"))
    expires = int(time.time()) + 1_000
    async with secure(guarded, authority) as channel:
        assert await ask(channel, (*bearer(issuer.token(tenant="acme", exp=expires)), *forged)) == "Paris."
    assert scripted.metadata["x-hedgerow-tenant"] == "acme"
    assert scripted.metadata["x-hedgerow-expires"] == str(expires)
    assert "authorization" not in scripted.metadata  # it has served its purpose
    assert (await guarded.logged(tenant="acme"))["grpc_status"] == "OK"


@pytest.mark.parametrize(
    ("claims", "code"),
    [
        ({"exp": int(time.time()) - 3_600}, "UNAUTHENTICATED"),
        ({"exp": None}, "UNAUTHENTICATED"),
        ({"iss": "https://evil.example"}, "UNAUTHENTICATED"),
        ({"aud": "another"}, "PERMISSION_DENIED"),
        ({"tenant": None}, "PERMISSION_DENIED"),
        ({"tenant": ""}, "PERMISSION_DENIED"),
    ],
)
async def test_a_token_that_does_not_hold_is_refused(
    guarded: Edge, scripted: Gateway, issuer: Issuer, authority: Authority, claims: dict[str, Any], code: str
) -> None:
    async with secure(guarded, authority) as channel:
        refused = await refusal(channel, bearer(issuer.token(**{"tenant": "acme", **claims})))
    assert refused.code().name == code
    assert scripted.metadata == {}


@pytest.mark.parametrize("metadata", [(), (("x-hedgerow-tenant", "evil"),), bearer("sesame"), bearer("a.b.c")])
async def test_calls_without_a_token_are_refused(
    guarded: Edge, scripted: Gateway, authority: Authority, metadata: Any
) -> None:
    async with secure(guarded, authority) as channel:
        refused = await refusal(channel, metadata)
    assert refused.code() is grpc.StatusCode.UNAUTHENTICATED
    assert scripted.metadata == {}


async def test_keys_are_exchanged_without_a_restart_and_without_cutting_an_answer_off(
    guarded: Edge, scripted: Gateway, issuer: Issuer, authority: Authority
) -> None:
    keys, new = guarded.folder / "jwks.json", Issuer()
    scripted.requests.clear()
    scripted.script = [hold := Hold(), *answer("Par", "is.")]
    async with secure(guarded, authority) as channel, secure(guarded, authority) as later:
        answered = asyncio.create_task(ask(channel, bearer(issuer.token(tenant="acme")), timeout_s=60))
        await seen(scripted)
        scripted.script = answer("Par", "is.")
        for current, former in ((new, issuer), (issuer, new)):
            keys.write_text(current.jwks())
            await taken(later, current)
            refused = await refusal(later, bearer(former.token(tenant="acme")))
            assert refused.code() is grpc.StatusCode.UNAUTHENTICATED
        hold.release.set()
        assert await answered == "Paris."


async def taken(channel: grpc.aio.Channel, issuer: Issuer) -> None:
    """Return when its tokens are good."""
    async with asyncio.timeout(20):
        while True:
            with suppress(grpc.aio.AioRpcError):
                await ask(channel, bearer(issuer.token(tenant="acme")))
                return
            await asyncio.sleep(0.05)


async def test_a_page_asks_without_its_token_and_can_read_why_it_is_refused(
    guarded: Edge, scripted: Gateway, authority: Authority
) -> None:
    wants = {"origin": ORIGIN, "access-control-request-method": "POST"}
    async with httpx.AsyncClient(
        base_url=f"https://{guarded.address}", verify=trusting(authority), timeout=20
    ) as browser:
        may = await browser.options(GENERATE, headers=wants)
        refused = await browser.post(**web_call())
        healthy = await browser.get("/healthz")
    assert may.headers["access-control-allow-origin"] == ORIGIN
    assert refused.headers["access-control-allow-origin"] == ORIGIN
    assert refused.headers["grpc-status"] == str(grpc.StatusCode.UNAUTHENTICATED.value[0])
    assert healthy.status_code == 200
    assert scripted.metadata == {}


async def test_health_over_grpc_needs_no_token_and_reflection_does(guarded: Edge, authority: Authority) -> None:
    async with secure(guarded, authority) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        state = await stub.Check(health_pb2.HealthCheckRequest(), timeout=20)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")(b"")
    assert state.status == health_pb2.HealthCheckResponse.SERVING
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_http2_is_agreed_on_and_old_tls_is_not(guarded: Edge, authority: Authority) -> None:
    host, _, port = guarded.address.rpartition(":")
    context = trusting(authority)
    context.set_alpn_protocols(["h2", "http/1.1"])
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    agreed = writer.get_extra_info("ssl_object").selected_alpn_protocol()
    writer.close()
    await writer.wait_closed()
    assert agreed == "h2"
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old = trusting(authority, ssl.TLSVersion.TLSv1_1)
    with pytest.raises(ssl.SSLError):
        await asyncio.open_connection(host, int(port), ssl=old)


async def test_a_new_certificate_is_served_without_a_restart(
    guarded: Edge, scripted: Gateway, issuer: Issuer, authority: Authority, certificates: Certificates
) -> None:
    async def shown() -> str:
        host, _, port = guarded.address.rpartition(":")
        return await asyncio.to_thread(ssl.get_server_certificate, (host, int(port)))

    before = await shown()
    async with secure(guarded, authority) as channel:
        scripted.script = [hold := Hold(), *answer("Par", "is.")]
        answered = asyncio.create_task(ask(channel, bearer(issuer.token(tenant="acme"))))
        certificates.renew("edge")
        await until(shown, holds=lambda now: now != before)
        hold.release.set()
        assert await answered == "Paris."  # an open connection stays open
    assert await shown() == (certificates.folder / "edge/tls.crt").read_text()


async def test_the_edges_span_is_the_parent_of_the_gateways(
    guarded: Edge, scripted: Gateway, issuer: Issuer, authority: Authority, collector: Collector
) -> None:
    trace_id = "b" * 32
    metadata = (*bearer(issuer.token(tenant="acme")), ("traceparent", f"00-{trace_id}-00f067aa0ba902b7-01"))
    async with secure(guarded, authority) as channel:
        await ask(channel, metadata)
    (span,) = await until(lambda: collector.traces.get(trace_id))
    assert (span.service, span.parent_id.hex()) == ("edge", "00f067aa0ba902b7")
    assert scripted.metadata["traceparent"] == f"00-{trace_id}-{span.span_id.hex()}-01"
    assert (await guarded.logged(trace_id=trace_id))["grpc_status"] == "OK"


def trusting(authority: Authority, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.pem().decode())
    context.maximum_version = newest
    return context
