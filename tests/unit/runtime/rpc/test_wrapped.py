"""Health and reflection behind our boundary, over a real connection: what they must not say is gRPC's own doing."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from hedgerow.cache.v1 import cache_pb2
from services.runtime.errors import Unauthenticated
from services.runtime.process.health import Health
from services.runtime.rpc.wrapped import Metadata
from tests.unit.runtime.served import served

CACHE = cache_pb2.DESCRIPTOR.services_by_name["CacheService"]
CHECK, WATCH, LIST = (f"/grpc.health.v1.Health/{name}" for name in ("Check", "Watch", "List"))
REFLECT = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
NOT_UTF8 = b"\x0a\x01\xff"  # field 1, a string in both contracts, of one byte
SECRET = "hunter2"
LISTING = reflection_pb2.ServerReflectionRequest(list_services="*")


class Keyed:
    """A servicer that knows one key."""

    def authorize(self, metadata: Metadata, identity: str) -> None:
        if ("authorization", "Bearer sesame") not in metadata:
            raise Unauthenticated("authorization: required")


class Running:
    """A server, and a channel to it."""

    def __init__(self, channel: grpc.aio.Channel, servicers: dict[str, Any], checks: Health):
        self.channel, self.servicers, self.checks = channel, servicers, checks

    async def refusal(self, method: str, raw: bytes, *, metadata: Metadata = ()) -> tuple[grpc.StatusCode, str]:
        """(code, the field at fault) of a call with `raw` as its request; (OK, "") when it is answered."""
        try:
            await self._call(method, raw, metadata)
        except grpc.aio.AioRpcError as error:
            if "SendMessageOperation" in (error.debug_error_string() or ""):
                # grpc.aio was still sending when the refusal came, and has put an error of its own in its place.
                return await self.refusal(method, raw, metadata=metadata)
            info, details = error_details_pb2.ErrorInfo(), dict(error.trailing_metadata() or ())
            status = status_pb2.Status.FromString(details.get("grpc-status-details-bin", b""))
            any(detail.Unpack(info) for detail in status.details)
            return error.code(), info.metadata["field"]
        return grpc.StatusCode.OK, ""

    async def _call(self, method: str, raw: bytes, metadata: Metadata) -> None:
        if method == WATCH:
            watch = self.channel.unary_stream(method)(raw, metadata=metadata, timeout=5)
            await watch.read()
            watch.cancel()
        elif method == REFLECT:
            replies = self.channel.stream_stream(method)(iter([raw]), metadata=metadata, timeout=5)
            assert [reply async for reply in replies]
        else:
            await self.channel.unary_unary(method)(raw, metadata=metadata, timeout=5)


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    """Serves a service that has been assembled and asks for no key."""
    servicers: dict[str, Any] = {CACHE.full_name: object()}
    async with served([CACHE], servicers) as (channel, checks):
        yield Running(channel, servicers, checks)


@pytest.mark.parametrize(
    ("method", "field"), [(CHECK, "service"), (WATCH, "service"), (REFLECT, "host")], ids=["check", "watch", "reflect"]
)
async def test_a_malformed_request_is_an_invalid_argument_that_names_the_field(
    running: Running, method: str, field: str
) -> None:
    assert await running.refusal(method, NOT_UTF8) == (grpc.StatusCode.INVALID_ARGUMENT, field)
    code, _ = await running.refusal(method, b"\x0a\x05a")  # cut off
    assert code == grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("method", [CHECK, WATCH, REFLECT])
async def test_no_bytes_are_answered_with_unknown_or_internal(running: Running, method: str) -> None:
    rng = random.Random(7)
    whole = reflection_pb2.ServerReflectionRequest(
        file_containing_extension={"containing_type": "google.protobuf.FieldOptions", "extension_number": 1}
    ).SerializeToString()
    for _ in range(150):
        raw = bytearray(rng.choice([rng.randbytes(rng.randrange(24)), whole[: rng.randrange(len(whole))], whole]))
        if raw:
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        code, _ = await running.refusal(method, bytes(raw))
        assert code in (grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND), bytes(raw)


async def test_health_is_as_it_was(running: Running) -> None:
    stub: Any = health_pb2_grpc.HealthStub(running.channel)
    check = health_pb2.HealthCheckRequest(service=CACHE.full_name)
    watch = stub.Watch(check)
    assert (await stub.Check(check)).status == health_pb2.HealthCheckResponse.NOT_SERVING
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
    running.checks.set(CACHE.full_name, health_pb2.HealthCheckResponse.SERVING)
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
    watch.cancel()
    assert await running.refusal(CHECK, b"\x0a\x01?") == (grpc.StatusCode.NOT_FOUND, "")


async def test_a_method_that_grpcio_leaves_out_is_unimplemented(running: Running) -> None:
    assert await running.refusal(LIST, b"") == (grpc.StatusCode.UNIMPLEMENTED, "")


async def test_reflection_is_as_it_was(running: Running) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(running.channel)
    symbol = reflection_pb2.ServerReflectionRequest(file_containing_symbol=CACHE.full_name)
    listed, found = [reply async for reply in stub.ServerReflectionInfo(iter([LISTING, symbol]))]
    names = {service.name for service in listed.list_services_response.service}
    assert names == {CACHE.full_name, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
    assert found.file_descriptor_response.file_descriptor_proto


async def test_reflection_asks_for_the_key_of_a_service_that_has_keys_and_health_does_not(running: Running) -> None:
    running.servicers[CACHE.full_name] = Keyed()
    raw = LISTING.SerializeToString()
    for metadata in ((), (("authorization", "Bearer wrong"),)):
        assert await running.refusal(REFLECT, raw, metadata=metadata) == (grpc.StatusCode.UNAUTHENTICATED, "")
    assert (await running.refusal(REFLECT, NOT_UTF8))[0] == grpc.StatusCode.UNAUTHENTICATED  # the key comes first
    assert await running.refusal(REFLECT, raw, metadata=(("authorization", "Bearer sesame"),)) == (
        grpc.StatusCode.OK,
        "",
    )
    assert await running.refusal(CHECK, b"") == (grpc.StatusCode.OK, "")


async def test_reflection_waits_until_its_permitted_callers_are_known(running: Running) -> None:
    running.servicers.clear()
    assert (await running.refusal(REFLECT, LISTING.SerializeToString()))[0] == grpc.StatusCode.UNAVAILABLE
    assert await running.refusal(CHECK, b"") == (grpc.StatusCode.OK, "")


async def test_a_bug_keeps_its_secret(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def authorize(self, metadata: Metadata, identity: str) -> None:
            raise RuntimeError(SECRET)

    running.servicers[CACHE.full_name] = Broken()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await running._call(REFLECT, LISTING.SerializeToString(), ())
    assert caught.value.code() == grpc.StatusCode.INTERNAL
    assert SECRET not in str(caught.value.details()) + caplog.text
