"""Requests that no honest caller sends."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from hedgerow.audio.v1 import audio_pb2
from hedgerow.cache.v1 import cache_pb2
from hedgerow.channel import open_channel
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2
from hedgerow.llm.v1 import llm_pb2
from hedgerow.router.v1 import router_pb2
from hedgerow.vision.v1 import vision_pb2
from launcher.processes import check_health
from tests.fault.asking import question
from tests.fault.malformed import malformed, parses
from tests.fault.memory import forget_peak, peak_mib
from tests.fault.mesh import Mesh, Processes
from tests.fault.report import Report
from tests.forked import ServiceProcess
from tests.models import MODELS, SAMPLES

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(60)]
_GENERATE = "/hedgerow.gateway.v1.GatewayService/Generate"
_MIB = 1024 * 1024
_ANY_SIZE = (("grpc.max_send_message_length", -1), ("grpc.max_metadata_size", 64 * 1024 * 1024))
_PICTURE = (SAMPLES / "yellow-triangle.webp").read_bytes()
_RECORDING = (SAMPLES / "seven-plus-five.wav").read_bytes()[:4_000]
_QUESTION = cache_pb2.Question(tenant="t", messages=question("a").messages)
_ANSWER = cache_pb2.Answer(text="a", model="m", finish_reason=chat_pb2.FINISH_REASON_STOP)
_EXAMPLES: dict[str, Message] = {  # good ones, so that what is nearly good reaches further in
    "hedgerow.gateway.v1.GatewayService.Generate": question("a", budget_ms=1_000),
    "hedgerow.gateway.v1.GatewayService.GenerateBatch": gateway_pb2.GenerateBatchRequest(requests=[question("a")]),
    "hedgerow.cache.v1.CacheService.Lookup": cache_pb2.LookupRequest(question=_QUESTION),
    "hedgerow.cache.v1.CacheService.Store": cache_pb2.StoreRequest(question=_QUESTION, answer=_ANSWER),
    "hedgerow.vision.v1.VisionService.Classify": vision_pb2.ClassifyRequest(images=[vision_pb2.Image(data=_PICTURE)]),
    "hedgerow.vision.v1.VisionService.Embed": vision_pb2.EmbedRequest(images=[vision_pb2.Image(data=_PICTURE)]),
    "hedgerow.audio.v1.AudioService.Transcribe": audio_pb2.TranscribeRequest(data=_RECORDING),
    "hedgerow.llm.v1.LLMService.Generate": llm_pb2.GenerateRequest(messages=question("a").messages),
}
_LEFT_OUT = ("grpc.health.v1.Health.List",)  # not served
_BUGS = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)


@pytest.mark.parametrize(
    ("fault", "message", "metadata", "compression"),
    [
        ("message of 5 MiB", 5 * _MIB, 0, grpc.Compression.NoCompression),
        ("metadata of 16 KiB", 100, 16 * 1024, grpc.Compression.NoCompression),
        ("metadata of 1 MiB", 100, _MIB, grpc.Compression.NoCompression),
        ("gzip bomb of 16 MiB", 16 * _MIB, 0, grpc.Compression.Gzip),
    ],
)
async def test_a_request_too_large_is_refused_and_takes_no_memory(
    mesh: Mesh, report: Report, fault: str, message: int, metadata: int, compression: grpc.Compression
):
    raw = question("a").SerializeToString() + b"\0" * message
    headers = (("x-padding", "x" * metadata),) if metadata else ()
    forget_peak(mesh.gateway)  # of its start
    before = peak_mib(mesh.gateway)
    with report.case(18, fault) as row:
        async with open_channel(mesh.gateway.spec.address, _ANY_SIZE) as channel:
            for _ in range(10):
                call = channel.unary_stream(_GENERATE)(raw, timeout=20, metadata=headers, compression=compression)
                assert await _ended(call) is grpc.StatusCode.RESOURCE_EXHAUSTED
                row.tally(failed=1)
        row.measured("memory", peak_mib(mesh.gateway) - before, 20, " MiB")
        row.count(outcome := await mesh.caller.ask("Still there?", bypass=True))
        assert outcome.ok


async def _ended(call: Any) -> grpc.StatusCode:
    """The status of a stream, or OK with its first message: then it is cancelled."""
    try:
        await call.read()
    except grpc.aio.AioRpcError as error:
        return error.code()
    call.cancel()
    return grpc.StatusCode.OK


@pytest.mark.timeout(400)
async def test_malformed_messages_are_invalid_arguments(
    mesh: Mesh, starter: Processes, report: Report, full_size: bool
):
    openai = {"engine": "openai", "openai__base_url": "http://127.0.0.1:1/v1", "openai__model": "m"}
    llm = await starter.start("llm", **openai)
    vision = await starter.start("vision", models_dir=str(MODELS))
    audio = await starter.start("audio", model=str(MODELS / "demo-whisper"))
    health = health_pb2.DESCRIPTOR.services_by_name["Health"]
    reflection = reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"]
    services = (
        (mesh.gateway, gateway_pb2.DESCRIPTOR.services_by_name.values()),
        (mesh.cache, cache_pb2.DESCRIPTOR.services_by_name.values()),
        (mesh.router, router_pb2.DESCRIPTOR.services_by_name.values()),
        (llm, llm_pb2.DESCRIPTOR.services_by_name.values()),
        (vision, vision_pb2.DESCRIPTOR.services_by_name.values()),
        (audio, audio_pb2.DESCRIPTOR.services_by_name.values()),
        (mesh.gateway, (health, reflection)),
    )
    for process, served in services:
        for service in served:
            calls = 10_000 if full_size else 150
            with report.case(19, f"{calls:,} malformed messages to each method of `{service.full_name}`") as row:
                for method in service.methods:
                    if method.full_name in _LEFT_OUT:
                        continue
                    codes = await _fuzz(process, method, calls)
                    row.tally(ok=codes.count(grpc.StatusCode.OK), failed=calls - codes.count(grpc.StatusCode.OK))


async def _fuzz(process: ServiceProcess, method: MethodDescriptor, calls: int) -> list[grpc.StatusCode]:
    """Send a method what is malformed, 32 calls at once. The same calls each time."""
    rng, example = random.Random(method.full_name), _EXAMPLES.get(method.full_name)
    payloads = (malformed(method.input_type, rng, example) for _ in range(calls))
    async with open_channel(process.spec.address) as channel:
        workers = [_send_all(channel, method, payloads) for _ in range(32)]
        codes = [code for sent in await asyncio.gather(*workers) for code in sent]
    assert len(codes) == calls
    assert grpc.StatusCode.INVALID_ARGUMENT in codes  # some are no messages
    assert await check_health(process.spec.address, 5) == "SERVING"
    return codes


async def _send_all(
    channel: grpc.aio.Channel, method: MethodDescriptor, payloads: Iterable[bytes]
) -> list[grpc.StatusCode]:
    codes = []
    for raw in payloads:
        code = await _send(channel, method, raw)
        if parses(method.input_type, raw):
            assert code not in _BUGS, (method.full_name, raw, code)
        else:
            assert code is grpc.StatusCode.INVALID_ARGUMENT, (method.full_name, raw, code)
        codes.append(code)
    return codes


async def _send(channel: grpc.aio.Channel, method: MethodDescriptor, raw: bytes) -> grpc.StatusCode:
    """How a call with this request ends; a stream that has begun counts as OK."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    if method.client_streaming and method.server_streaming:
        return await _ended(channel.stream_stream(path)(iter([raw]), timeout=20))
    if method.server_streaming:
        return await _ended(channel.unary_stream(path)(raw, timeout=20))
    if method.client_streaming:
        call = channel.stream_unary(path)(iter([raw]), timeout=20)
    else:
        call = channel.unary_unary(path)(raw, timeout=20)
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK
