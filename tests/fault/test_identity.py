"""Callers with a wrong identity are refused at the handshake, or on every method. Certificates can be exchanged."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import MethodDescriptor
from grpc_reflection.v1alpha import reflection

from hedgerow import Tls
from hedgerow.channel import open_channel
from hedgerow.gateway.v1 import gateway_pb2
from hedgerow.router.v1 import router_pb2, router_pb2_grpc
from launcher.certificate_authority import make_authority
from launcher.processes import free_port
from services.runtime.rpc.reloading_channel import ReloadingChannel
from services.runtime.security import tls
from tests.certificates import Certificates, mutual
from tests.fault.report import Report, Row
from tests.forked import ServiceProcess
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(60)]
_ROUTER = router_pb2.DESCRIPTOR.services_by_name["RouterService"]
_GATEWAY = gateway_pb2.DESCRIPTOR.services_by_name["GatewayService"]
_REFLECTION = descriptor_pool.Default().FindServiceByName(reflection.SERVICE_NAME)
_HEALTH = descriptor_pool.Default().FindServiceByName("grpc.health.v1.Health")
_MODELS = json.dumps([{"name": "m", "tier": "fast", "context_tokens": 1000}])
_TAKEN = "certificate of router"  # in a router's log
_NOT_A_MESSAGE = b"\xff\xff"
_CALLERS = 8  # of a run that writes the table; else 2, which leave the processor to what changes
_ROUNDS = 3


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "certs")


@pytest_asyncio.fixture(loop_scope="session")
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as entered:
        yield entered


@pytest_asyncio.fixture(loop_scope="session")
async def router(certificates: Certificates, stack: AsyncExitStack, tmp_path: Path) -> ServiceProcess:
    return await mutual(stack, certificates, tmp_path, "router", models=_MODELS)


def _methods(*services: Any) -> Iterator[MethodDescriptor]:
    """All of them but `Health.List`, which grpcio does not have."""
    return (method for service in services for method in service.methods if method.name != "List")


async def _end(channel: grpc.aio.Channel, method: MethodDescriptor, request: bytes = b"", *metadata: Any) -> Any:
    """How a call of a method with these bytes ends: the error, or None when it is answered."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    try:
        if method.client_streaming:
            make = channel.stream_stream if method.server_streaming else channel.stream_unary
            call = make(path)(metadata=metadata, timeout=10)  # without a request: the refusal comes before it
        elif method.server_streaming:
            call = channel.unary_stream(path)(request, metadata=metadata, timeout=10)
        else:
            call = channel.unary_unary(path)(request, metadata=metadata, timeout=10)
        await (call.read() if method.server_streaming else call)
        call.cancel()
    except grpc.aio.AioRpcError as error:
        return error
    return None


def _strangers(certificates: Certificates) -> dict[str, Tls | None]:
    """Credentials of callers that must not reach a router."""
    ours = certificates.of("gateway", "router")
    return {
        "no certificate": Tls(certificates.folder / "ca.crt", server_name="router.hedgerow"),
        "of another CA": certificates.foreign("gateway", "router"),
        "expired": certificates.expired("gateway", "router"),
        "plain text": None,
        "expects another service": certificates.of("gateway", "cache"),
        "expects another CA": Tls(make_authority().pem(), ours.certificate, ours.key, "router.hedgerow"),
    }


async def test_peers_without_a_valid_certificate_are_refused_at_the_handshake(
    certificates: Certificates, router: ServiceProcess, report: Report
):
    fault = "no certificate, one of another CA, an expired one, plain text; a server of another name or CA"
    with report.case(23, fault) as row:
        for kind, caller in _strangers(certificates).items():
            async with open_channel(router.spec.address, tls=caller) as channel:
                for method in _methods(_ROUTER, _REFLECTION, _HEALTH):
                    error = await _end(channel, method)
                    assert error is not None, (kind, method.full_name)
                    assert error.code() is grpc.StatusCode.UNAVAILABLE, (kind, error)
                    assert error.details().startswith("failed to connect to all addresses"), (kind, error)
                    row.tally(failed=1)
        async with open_channel(router.spec.address, tls=certificates.of("gateway", "router")) as channel:
            await router_pb2_grpc.RouterServiceStub(channel).ListModels(router_pb2.ListModelsRequest(), timeout=10)
            row.tally(ok=1)


async def test_an_identity_that_may_not_call_is_refused_on_every_method(
    certificates: Certificates, router: ServiceProcess, report: Report
):
    certificates.renew("intruder")
    callers = {
        identity: certificates.of(identity, "router")
        for identity in ("cache", "llm", "router", "edge", "control", "intruder")
    }
    health = {"cache", "llm", "intruder"}  # the others may ask it
    with report.case(23, "a service that may not call, on every method, reflection and malformed requests too") as row:
        for identity, caller in callers.items():
            services = (_ROUTER, _REFLECTION, *((_HEALTH,) if identity in health else ()))
            async with open_channel(router.spec.address, tls=caller) as channel:
                for method in _methods(*services):
                    for request in (b"", _NOT_A_MESSAGE):
                        error = await _end(channel, method, request)
                        assert error is not None, (identity, method.full_name)
                        assert error.code() is grpc.StatusCode.PERMISSION_DENIED, (identity, method.full_name, error)
                        assert error.details() == f"{identity} may not call router"
                        row.tally(failed=1)


async def test_certificates_change_under_load(
    certificates: Certificates, router: ServiceProcess, report: Report, full_size: bool
):
    with report.case(23, "certificates of server and client change while calls run, half-written ones between") as row:
        async with _load(certificates, router, row, _CALLERS if full_size else 2) as channel:
            for number in range(1, _ROUNDS + 1):
                _spoil(certificates, "router")
                await _logged(router, "stays as it was", number)
                async with _taken_up(router, channel):
                    for identity in ("router", "gateway"):
                        certificates.renew(identity)


async def test_the_authority_changes_under_load(
    certificates: Certificates, router: ServiceProcess, report: Report, full_size: bool
):
    old, new = certificates.authority, make_authority()
    both = old.pem() + new.pem()
    with report.case(
        23, "the CA is exchanged while calls run: both are trusted, then used, then only the new one"
    ) as row:
        async with _load(certificates, router, row, _CALLERS if full_size else 2) as channel:
            for by, trusting in ((old, both), (new, both), (new, new.pem())):
                async with _taken_up(router, channel):
                    for identity in ("router", "gateway"):
                        certificates.renew(identity, by=by, trusting=trusting)
        for kind, caller in {"old": old, "new": new}.items():
            issued = caller.issue("gateway", 1)
            asked = Tls(new.pem(), issued.certificate, issued.key, "router.hedgerow")
            async with open_channel(router.spec.address, tls=asked) as channel:
                error = await _end(channel, _ROUTER.methods_by_name["ListModels"])
                assert (error is None) is (kind == "new"), (kind, error)
                row.tally(ok=int(error is None), failed=int(error is not None))


@asynccontextmanager
async def _load(
    certificates: Certificates, router: ServiceProcess, row: Row, callers: int
) -> AsyncIterator[ReloadingChannel]:
    """The gateway's channel to the router, on which calls run all the time. None of them may fail."""
    over = asyncio.Event()
    async with tls.dial(certificates.folder / "gateway") as dial, dial(router.spec.address, "router") as channel:
        assert isinstance(channel, ReloadingChannel)
        calling = [asyncio.create_task(_keep_calling(channel, over)) for _ in range(callers)]
        try:
            yield channel
        finally:
            over.set()
            ends = [code for codes in await asyncio.gather(*calling) for code in codes]
    ok = ends.count(grpc.StatusCode.OK)
    row.tally(ok=ok, failed=len(ends) - ok)
    assert set(ends) == {grpc.StatusCode.OK}


@asynccontextmanager
async def _taken_up(router: ServiceProcess, channel: ReloadingChannel) -> AsyncIterator[None]:
    """Waits until both sides have what is written inside."""
    before, known = channel.current, router.log.read_text().count(_TAKEN)
    yield
    await _logged(router, _TAKEN, known + 1)
    await until(lambda: channel.current is not before)


async def _keep_calling(channel: grpc.aio.Channel, over: asyncio.Event) -> list[grpc.StatusCode]:
    """How calls end that are made one after the other, until it is over and each caller has made some."""
    list_models, ends = router_pb2_grpc.RouterServiceStub(channel).ListModels, []
    while not over.is_set() or len(ends) < 10:
        call: Any = list_models(router_pb2.ListModelsRequest(), timeout=10)
        ends.append(await call.code())
        await asyncio.sleep(0.002)
    return ends


def _spoil(certificates: Certificates, identity: str) -> None:
    """Leave a certificate without its key, as a writer does that is interrupted half-way."""
    issued = certificates.authority.issue(identity, 1)
    (certificates.folder / identity / "tls.crt").write_bytes(issued.certificate)


async def _logged(process: ServiceProcess, text: str, times: int) -> None:
    await until(lambda: process.log.read_text().count(text) >= times)


async def test_a_tenants_name_counts_from_the_edge_alone(
    certificates: Certificates, stack: AsyncExitStack, tmp_path: Path, report: Report
):
    gateway = await mutual(
        stack,
        certificates,
        tmp_path,
        "gateway",
        cache_address="",
        router_address="",
        llm_addresses=json.dumps({"m": f"127.0.0.1:{free_port()}"}),  # no listener: the test is about authorization
        tenants=json.dumps({"acme": {"keys": ["0" * 64]}}),
        ready__models="0",
        ready__unreached_ms="0",
    )
    named = ("x-hedgerow-tenant", "acme")
    with report.case(24, "a tenant's name in the metadata, from a caller other than the edge, on every method") as row:
        for identity, refusal in (
            ("operator", grpc.StatusCode.UNAUTHENTICATED),
            ("router", grpc.StatusCode.PERMISSION_DENIED),
        ):
            async with open_channel(gateway.spec.address, tls=certificates.of(identity, "gateway")) as channel:
                for method in _methods(_GATEWAY, _REFLECTION):
                    error = await _end(channel, method, b"", named)
                    assert error is not None, (identity, method.full_name)
                    assert error.code() is refusal, (identity, method.full_name, error)
                    row.tally(failed=1)
        async with open_channel(gateway.spec.address, tls=certificates.of("edge", "gateway")) as channel:
            generate = _GATEWAY.methods_by_name["Generate"]
            believed = await _end(channel, generate, b"", named)
            assert believed.code() is grpc.StatusCode.INVALID_ARGUMENT  # authenticated: the request is empty
            row.tally(ok=1)
            for unclear in ((), (named, named)):
                error = await _end(channel, generate, b"", *unclear)
                assert error.code() is grpc.StatusCode.UNAUTHENTICATED, unclear
                row.tally(failed=1)
