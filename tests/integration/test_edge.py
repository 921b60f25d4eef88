"""What comes in from outside meets Envoy first: callers of several languages, browsers, and who must not come in."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2, health_pb2_grpc

import hedgerow
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.gateway.v1 import gateway_pb2_grpc
from launcher import envoy
from launcher.certificate_authority import Authority
from tests.certificates import Certificates, mutual
from tests.conftest import REPOSITORY
from tests.integration.collector import Collector, collecting
from tests.integration.edge import Edge, Gateway, Issuer, edge_before, gateway
from tests.integration.scripted import Hold, Refusal
from tests.integration.scripted_gateway import TRACE_ID, answer
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

NODE = Path(__file__).parent / "node"
GENERATE = "/hedgerow.gateway.v1.GatewayService/Generate"
ORIGIN = "https://app.example"
STREAMS = 4  # on one connection
CONNECTIONS = 40  # of all callers together
CHECKS = 4  # of health at once, likewise
TRACEPARENT = f"00-{TRACE_ID}-00f067aa0ba902b7-01"
QUESTION = pb.GenerateRequest(messages=[{"role": "ROLE_USER", "content": "What is the capital of France?"}])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def behind() -> AsyncIterator[Gateway]:
    """The gateway behind all edges but the last."""
    async with gateway() as scripted:
        yield scripted


@pytest_asyncio.fixture(loop_scope="module")
async def scripted(behind: Gateway) -> Gateway:
    behind.script, behind.metadata = answer("Par", "is."), {}
    return behind


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def edge(behind: Gateway, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Edge]:
    """Plain text, open to all: the gateway checks credentials."""
    settings = {"cors_origins": [ORIGIN], "limits": {"streams_per_connection": STREAMS, "connections": CONNECTIONS}}
    async with edge_before(tmp_path_factory.mktemp("open"), [behind.target], settings) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def closed(behind: Gateway, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Edge]:
    """As it is beyond loopback: nobody gets as far as a gateway without a key, be it a wrong one."""
    settings = {"cors_origins": [ORIGIN], "allow_anonymous": False, "limits": {"health_checks": CHECKS}}
    async with edge_before(tmp_path_factory.mktemp("closed"), [behind.target], settings) as running:
        yield running


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def authority(certificates: Certificates) -> Authority:
    return certificates.authority


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def collector() -> AsyncIterator[Collector]:
    async with collecting() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guarded(
    behind: Gateway,
    issuer: Issuer,
    collector: Collector,
    certificates: Certificates,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Edge]:
    """TLS, tokens and traces."""
    folder = tmp_path_factory.mktemp("guarded")
    jwt = issuer.written(folder)
    settings = {"tls": True, "jwt": jwt, "cors_origins": ["*"], "otlp_endpoint": collector.address}
    own = {"edge_tls_dir": certificates.folder / "edge", "otlp_address": collector.address}
    async with edge_before(folder, [behind.target], settings, **own) as running:
        yield running


@pytest.fixture(scope="module")
def node_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a Node.js program, its packages installed as its lock says."""
    if not shutil.which("npm"):
        pytest.skip("there is no npm")
    return tmp_path_factory.mktemp("node")


def secure(edge: Edge, authority: Authority) -> grpc.aio.Channel:
    return grpc.aio.secure_channel(edge.address, grpc.ssl_channel_credentials(authority.pem()))


def trusting(authority: Authority, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.pem().decode())
    context.maximum_version = newest
    return context


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


async def ask(
    channel: grpc.aio.Channel, metadata: Any = (), timeout_s: float = 10, request: pb.GenerateRequest = QUESTION
) -> str:
    """The answer's text. Raises `AioRpcError`."""
    stub: Any = gateway_pb2_grpc.GatewayServiceStub(channel)
    call = stub.Generate(request, metadata=metadata, timeout=timeout_s)
    return "".join([event.delta.text async for message in call for event in message.events])


async def refusal(channel: grpc.aio.Channel, metadata: Any = (), timeout_s: float = 10) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await ask(channel, metadata, timeout_s)
    return refused.value


async def seen(gateway: Gateway, calls: int = 1) -> None:
    """Return when the gateway has been asked so often."""
    await until(lambda: len(gateway.requests) >= calls, 10)


def frames(body: bytes) -> Iterator[tuple[bool, bytes]]:
    """gRPC-Web's frames: (whether it holds the trailers, content)."""
    while body:
        size = int.from_bytes(body[1:5])
        yield bool(body[0] & 0x80), body[5 : 5 + size]
        body = body[5 + size :]


def web_call(**headers: str) -> dict[str, Any]:
    """What a page's gRPC-Web client posts."""
    body = QUESTION.SerializeToString()
    said = {"content-type": "application/grpc-web+proto", "x-grpc-web": "1", "origin": ORIGIN, **headers}
    return {"url": GENERATE, "content": b"\0" + len(body).to_bytes(4) + body, "headers": said}


# Who comes in, and how


async def test_the_sdk_streams_an_answer_through_the_edge(edge: Edge, scripted: Gateway) -> None:
    async with hedgerow.AsyncClient(edge.address, api_key="sesame") as client:
        got = await client.ask("What is the capital of France?", budget_ms=5_000)
    assert got.text == "Paris."
    assert scripted.metadata["authorization"] == "Bearer sesame"  # keys are the gateway's to check
    assert scripted.time_remaining_s is not None
    assert scripted.time_remaining_s < 10


async def test_text_comes_as_the_gateway_sends_it(edge: Edge, scripted: Gateway) -> None:
    begun, rest = answer("Par")[:-1], answer("Par", "is.")[-2:]
    hold = Hold()
    scripted.script = [*begun, hold, *rest]
    async with hedgerow.AsyncClient(edge.address) as client, client.stream("…") as events:
        async for event in events:
            if isinstance(event, hedgerow.TextDelta):
                break
        assert event.text == "Par"
        hold.release.set()
        assert [event.text async for event in events if isinstance(event, hedgerow.TextDelta)] == ["is."]


async def test_who_leaves_at_the_edge_has_left_at_the_gateway(edge: Edge, scripted: Gateway) -> None:
    scripted.script, scripted.cancelled = [*answer("Par")[:-1], Hold()], asyncio.Event()
    async with hedgerow.AsyncClient(edge.address) as client:
        events = client.stream("…")
        await anext(aiter(events))
        events.cancel()
        async with asyncio.timeout(5):
            await scripted.cancelled.wait()


async def test_a_node_client_streams_an_answer_with_nothing_but_the_protos(
    edge: Edge, scripted: Gateway, node_client: Path
) -> None:
    for file in ("package.json", "package-lock.json", "ask.js"):
        shutil.copy(NODE / file, node_client)
    await run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", folder=node_client)
    said = json.dumps({"authorization": "Bearer sesame", "traceparent": TRACEPARENT})
    asked = ("node", "ask.js", edge.address, str(REPOSITORY / "protos"), "What is the capital of France?", said)
    *events, status = map(json.loads, (await run(*asked, folder=node_client)).splitlines())
    assert "".join(event["delta"]["text"] for event in events if "delta" in event) == "Paris."
    assert [event["kind"] for event in events] == ["accepted", "stage", "delta", "delta", "final"]
    assert status == {"status": "OK", "details": ""}
    assert scripted.requests[-1].messages[0].content == "What is the capital of France?"
    assert scripted.metadata["traceparent"] == TRACEPARENT


async def test_envoy_takes_the_bootstrap_of_the_compose_mesh() -> None:
    file = REPOSITORY / "deploy/envoy/envoy.yaml"
    assert "OK" in await run(*envoy.command(file), "--mode", "validate", folder=file.parent)


async def run(*command: str, folder: Path) -> str:
    """The output of a program that must succeed."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, stdout=pipe, stderr=pipe)
    async with asyncio.timeout(120):
        output, problems = await process.communicate()
    assert process.returncode == 0, problems.decode()
    return output.decode()


async def test_a_page_asks_whether_it_may_call_and_then_streams_an_answer(edge: Edge, scripted: Gateway) -> None:
    wants = {"access-control-request-method": "POST", "access-control-request-headers": "content-type,x-grpc-web"}
    async with httpx.AsyncClient(base_url=f"http://{edge.address}") as browser:
        may = await browser.options(GENERATE, headers={"origin": ORIGIN, **wants})
        answered = await browser.post(**web_call())
    assert may.status_code == 200
    assert may.headers["access-control-allow-origin"] == ORIGIN
    assert {"authorization", "x-grpc-web"} <= set(may.headers["access-control-allow-headers"].split(","))
    assert answered.headers["access-control-allow-origin"] == ORIGIN
    assert answered.headers["content-type"] == "application/grpc-web+proto"
    *messages, (last, trailers) = frames(answered.content)
    events = [event for _, data in messages for event in pb.GenerateResponse.FromString(data).events]
    assert "".join(event.delta.text for event in events) == "Paris."
    assert last
    assert b"grpc-status:0" in trailers


async def test_a_page_of_somebody_else_may_not_call(edge: Edge, scripted: Gateway) -> None:
    wants = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    async with httpx.AsyncClient(base_url=f"http://{edge.address}") as browser:
        refused = await browser.options(GENERATE, headers=wants)
    assert "access-control-allow-origin" not in refused.headers
    assert scripted.metadata == {}


async def test_an_error_of_the_gateway_keeps_its_code_and_its_reason(edge: Edge, scripted: Gateway) -> None:
    scripted.script = [Refusal("RESOURCE_EXHAUSTED", "over its quota", "QUOTA_EXCEEDED", retry_delay_ms=250)]
    async with hedgerow.AsyncClient(edge.address) as client:
        with pytest.raises(hedgerow.HedgerowError) as refused:
            await client.ask("…")
    assert (refused.value.code, refused.value.reason) == ("RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED")


async def test_a_message_larger_than_envoys_buffers_goes_both_ways(edge: Edge, scripted: Gateway) -> None:
    scripted.script = answer("x" * 3_000_000)
    picture = pb.GenerateRequest(messages=QUESTION.messages, images=[{"data": bytes(3_000_000)}])
    async with grpc.aio.insecure_channel(edge.address) as channel:
        assert len(await ask(channel, request=picture)) == 3_000_000
    assert scripted.requests[-1] == picture


# What is not let through


async def test_a_forged_tenant_never_reaches_the_gateway(edge: Edge, scripted: Gateway) -> None:
    forged = (("x-hedgerow-tenant", "evil"), ("x-envoy-max-retries", "9"), ("x-envoy-upstream-rq-timeout-ms", "1"))
    async with grpc.aio.insecure_channel(edge.address) as channel:
        assert await ask(channel, forged) == "Paris."
        disguised = await refusal(channel, (("x_hedgerow_tenant", "evil"),))
    assert "x-hedgerow-tenant" not in scripted.metadata
    assert {name for name in scripted.metadata if name.startswith("x-envoy-")} <= {"x-envoy-external-address"}
    assert disguised.code() is grpc.StatusCode.INTERNAL  # HTTP/2 resets the stream


async def test_headers_beyond_the_limit_are_refused_and_their_neighbours_are_not(edge: Edge, scripted: Gateway) -> None:
    async with grpc.aio.insecure_channel(edge.address) as channel:
        scripted.script = [hold := Hold(), *answer("Par", "is.")]
        beside = asyncio.create_task(ask(channel))
        refused = await refusal(channel, (("too-much", "x" * 20_000),))
        hold.release.set()
        assert await beside == "Paris."
    async with httpx.AsyncClient(base_url=f"http://{edge.address}") as browser:
        plain = await browser.post(**web_call(**{"too-much": "x" * 20_000}))
    assert refused.code() is grpc.StatusCode.INTERNAL
    assert plain.status_code == 431


async def test_streams_beyond_the_limit_wait_for_others_to_end(edge: Edge, scripted: Gateway) -> None:
    scripted.requests.clear()
    scripted.script = [hold := Hold(), *answer("Par", "is.")]
    async with grpc.aio.insecure_channel(edge.address) as channel:
        calls = [asyncio.create_task(ask(channel)) for _ in range(STREAMS)]
        await seen(scripted, STREAMS)
        one_more = await refusal(channel, timeout_s=0.3)
        hold.release.set()
        assert await asyncio.gather(*calls) == ["Paris."] * STREAMS
        assert await ask(channel) == "Paris."
    assert one_more.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert len(scripted.requests) == STREAMS + 1  # who waited in vain was never seen


async def test_connections_beyond_the_limit_are_closed_at_once(edge: Edge, scripted: Gateway) -> None:
    host, _, port = edge.address.rpartition(":")
    async with grpc.aio.insecure_channel(edge.address) as channel, AsyncExitStack() as stack:
        assert await ask(channel) == "Paris."
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(CONNECTIONS)]
        for _, writer in silent:
            stack.callback(writer.close)
        closed = [asyncio.create_task(reader.read(1)) for reader, _ in silent]
        done, open_still = await asyncio.wait(closed, timeout=10, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result() for task in done][:1] == [b""]
        assert open_still
        assert await ask(channel) == "Paris."  # who was there first stays
        for task in open_still:
            task.cancel()


async def test_what_the_gateway_does_not_serve_ends_at_the_edge(edge: Edge, scripted: Gateway) -> None:
    async with grpc.aio.insecure_channel(edge.address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await channel.unary_unary("/hedgerow.cache.v1.CacheService/Lookup")(b"")
    async with httpx.AsyncClient(base_url=f"http://{edge.address}") as browser:
        answers = [await browser.get(path) for path in ("/", "/config_dump", GENERATE)]
    assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert [got.status_code for got in answers] == [404, 404, 404]
    assert scripted.metadata == {}


async def test_a_deadline_holds_at_the_edge_too(edge: Edge, scripted: Gateway) -> None:
    scripted.script, scripted.cancelled = [Hold()], asyncio.Event()
    async with grpc.aio.insecure_channel(edge.address) as channel:
        late = await refusal(channel, timeout_s=0.2)
    async with asyncio.timeout(5):
        await scripted.cancelled.wait()
    assert late.code() is grpc.StatusCode.DEADLINE_EXCEEDED


# Without a credential


@pytest.mark.parametrize("metadata", [(), (("authorization", "Basic sesame"),), (("authorization", ""),)])
async def test_who_has_no_key_is_refused_without_a_word_to_a_gateway(
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
    async with httpx.AsyncClient(base_url=f"http://{closed.address}") as browser:
        may = await browser.options(GENERATE, headers=wants)
        refused = await browser.post(**web_call())
    assert may.headers["access-control-allow-origin"] == ORIGIN
    assert refused.headers["access-control-allow-origin"] == ORIGIN
    assert refused.headers["grpc-status"] == str(grpc.StatusCode.UNAUTHENTICATED.value[0])
    assert scripted.metadata == {}


async def test_health_is_told_to_whoever_asks_and_watched_by_nobody(closed: Edge) -> None:
    async with grpc.aio.insecure_channel(closed.address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        state = await stub.Check(health_pb2.HealthCheckRequest(), timeout=10)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Watch(health_pb2.HealthCheckRequest(), timeout=10).read()
    assert state.status == health_pb2.HealthCheckResponse.SERVING
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED  # which gRPC's clients take for healthy


async def test_a_health_check_that_is_begun_and_not_asked_takes_no_place(closed: Edge) -> None:
    async with grpc.aio.insecure_channel(closed.address) as channel, AsyncExitStack() as stack:
        begin = channel.stream_stream("/grpc.health.v1.Health/Check")
        for _ in range(2 * CHECKS):
            stack.callback((call := begin()).cancel)
            await call.wait_for_connection()
        stub: Any = health_pb2_grpc.HealthStub(channel)
        for _ in range(3):
            assert (await stub.Check(health_pb2.HealthCheckRequest(), timeout=10)).status


async def test_no_answer_puts_a_gateway_out_of_service(scripted: Gateway, tmp_path: Path) -> None:
    async with gateway() as other, edge_before(tmp_path, [scripted.target, other.target], {}) as edge:
        async with grpc.aio.insecure_channel(edge.address) as channel:
            for code in ("DEADLINE_EXCEEDED", "UNAVAILABLE"):
                scripted.script = other.script = [Refusal(code, "…", "WHATEVER")]
                assert {(await refusal(channel)).code().name for _ in range(20)} == {code}
        async with httpx.AsyncClient(base_url=f"http://{edge.admin}") as admin:
            stats = (await admin.get("/stats?filter=cluster.gateway.outlier_detection.ejections_enforced_total")).text
    assert stats == "cluster.gateway.outlier_detection.ejections_enforced_total: 0\n"


# What operators see


async def test_health_is_envoys_own_over_http_and_the_gateways_over_grpc(edge: Edge) -> None:
    async with httpx.AsyncClient(base_url=f"http://{edge.address}") as browser:
        assert (await browser.get("/healthz")).status_code == 200
    async with grpc.aio.insecure_channel(edge.address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        state = await stub.Check(health_pb2.HealthCheckRequest(), timeout=10)
    assert state.status == health_pb2.HealthCheckResponse.SERVING


async def test_a_call_is_one_line_in_the_access_log_with_its_trace_id(edge: Edge, scripted: Gateway) -> None:
    trace_id = "a" * 32
    async with grpc.aio.insecure_channel(edge.address) as channel:
        await ask(channel, (("traceparent", f"00-{trace_id}-00f067aa0ba902b7-01"),))
    assert scripted.metadata["traceparent"] == f"00-{trace_id}-00f067aa0ba902b7-01"  # as it came
    line = await edge.logged(trace_id=trace_id)
    expected = {"path": GENERATE, "grpc_status": "OK", "upstream": scripted.target}
    assert expected.items() <= line.items()
    assert "tenant" not in line, "nobody has said"
    assert line["bytes_sent"] > 0
    assert line["duration_ms"] >= 0


# Tokens


async def test_a_token_names_the_tenant_whatever_its_bearer_says(
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
async def test_without_a_token_nobody_comes_in(
    guarded: Edge, scripted: Gateway, authority: Authority, metadata: Any
) -> None:
    async with secure(guarded, authority) as channel:
        refused = await refusal(channel, metadata)
    assert refused.code() is grpc.StatusCode.UNAUTHENTICATED
    assert scripted.metadata == {}


async def test_a_token_of_another_key_is_refused(guarded: Edge, scripted: Gateway, authority: Authority) -> None:
    async with secure(guarded, authority) as channel:
        refused = await refusal(channel, bearer(Issuer().token(tenant="acme")))
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
    async with httpx.AsyncClient(base_url=f"https://{guarded.address}", verify=trusting(authority)) as browser:
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
        state = await stub.Check(health_pb2.HealthCheckRequest(), timeout=10)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")(b"")
    assert state.status == health_pb2.HealthCheckResponse.SERVING
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


# TLS and traces


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
        await until(shown, 10, holds=lambda now: now != before)
        hold.release.set()
        assert await answered == "Paris."  # who was connected stays so
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


async def test_envoy_and_the_mesh_prove_to_each_other_who_they_are(certificates: Certificates, tmp_path: Path) -> None:
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


def mutual_tls(certificates: Certificates) -> dict[str, Path]:
    return {"control_tls_dir": certificates.folder / "control", "tls_dir": certificates.folder / "edge"}


async def test_the_real_gateway_knows_the_tenant_of_a_token(
    issuer: Issuer, certificates: Certificates, tmp_path: Path
) -> None:
    tenants = json.dumps({"acme": {"requests_per_s": 0.001, "requests_burst": 1}})
    nobody = {"cache_address": "", "router_address": "", "llm_addresses": '{"m": "127.0.0.1:1"}'}
    nobody |= {"ready__models": "0", "ready__unreached_ms": "0"}
    async with AsyncExitStack() as stack:
        real = await mutual(stack, certificates, tmp_path, "gateway", tenants=tenants, **nobody)
        settings = {"jwt": issuer.written(tmp_path)}
        edge = await stack.enter_async_context(
            edge_before(tmp_path, [real.spec.address], settings, **mutual_tls(certificates))
        )
        reasons = [await reason(edge, issuer.token(tenant=name)) for name in ("acme", "acme", "other", "other")]
    assert reasons == ["MODEL_UNAVAILABLE", "QUOTA_EXCEEDED", "MODEL_UNAVAILABLE", "MODEL_UNAVAILABLE"]


async def test_a_conversation_ends_with_its_token(
    issuer: Issuer, certificates: Certificates, models: Path, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        audio = await mutual(stack, certificates, tmp_path, "audio", model=str(models / "demo-whisper"))
        real = await mutual(
            stack,
            certificates,
            tmp_path,
            "gateway",
            cache_address="",
            router_address="",
            llm_addresses='{"m": "127.0.0.1:1"}',
            ready__models="0",
            audio_address=audio.spec.address,
        )
        settings = {"jwt": issuer.written(tmp_path)}
        edge = await stack.enter_async_context(
            edge_before(tmp_path, [real.spec.address], settings, **mutual_tls(certificates))
        )
        token = issuer.token(tenant="acme", exp=int(time.time()) - 55)  # the edge takes it for five seconds more
        client = await stack.enter_async_context(hedgerow.AsyncClient(edge.address, api_key=token))
        began = time.monotonic()
        with pytest.raises(hedgerow.HedgerowError) as ended:
            async for _ in client.converse(_silence()):
                pass
    assert ended.value.reason == "CREDENTIAL_EXPIRED"
    assert 3 < time.monotonic() - began < 15


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


# Coming and going


async def test_a_drained_edge_lets_answers_end_and_takes_itself_out(behind: Gateway, tmp_path: Path) -> None:
    behind.requests.clear()
    behind.script = [hold := Hold(), *answer("Par", "is.")]
    async with edge_before(tmp_path, [behind.target], {}) as edge, AsyncExitStack() as stack:
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(edge.address))
        browser = await stack.enter_async_context(httpx.AsyncClient(base_url=f"http://{edge.address}"))
        answered = asyncio.create_task(ask(channel))
        await seen(behind)
        drained = asyncio.create_task(envoy.drain(edge.admin, timeout_s=30))
        await until(lambda: browser.get("/healthz"), 10, holds=lambda page: page.status_code != 200)
        assert not drained.done()
        hold.release.set()
        assert await answered == "Paris."
        assert await drained


async def test_a_drain_ends_with_its_time_and_what_is_in_flight_then_is_told_so(
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
        async with asyncio.timeout(5):
            await behind.cancelled.wait()


async def test_a_gateway_that_goes_costs_no_call_and_the_last_one_is_told_as_unavailable(tmp_path: Path) -> None:
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
            async with httpx.AsyncClient(base_url=f"http://{edge.address}") as browser:
                page = await browser.post(**web_call())
    assert gone.code() is grpc.StatusCode.UNAVAILABLE
    assert page.headers["grpc-status"] == str(grpc.StatusCode.UNAVAILABLE.value[0])
