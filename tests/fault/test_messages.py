"""Messages by gRPC that would cost more than they are worth, from one tenant, while another asks its questions."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
import pytest
import pytest_asyncio
from google.rpc import code_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hedgerow.channel import MAX_MESSAGE_BYTES
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from tests.fault.asking import Asker, asking
from tests.fault.beside import asking_beside
from tests.fault.faulty_llm import faulty_llm
from tests.fault.memory import container_mib, forget_peak, peak_mib
from tests.fault.mesh import UNLIMITED, processes
from tests.fault.report import Report
from tests.fault.short_messages import HEALTH, short_messages
from tests.forked import ServiceProcess
from tests.keys import tenants

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]
_MIB = 1 << 20
_HOSTILE = 24  # tenants
_LEAST_BESIDE = 20  # calls of B
_Scene = tuple[ServiceProcess, Asker, Asker]  # the gateway, a hostile tenant, and B


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[_Scene]:
    names = ["b", *(f"a{number}" for number in range(_HOSTILE))]
    async with AsyncExitStack() as stack:
        starter = await stack.enter_async_context(processes(tmp_path_factory.mktemp("messages")))
        llm = await stack.enter_async_context(faulty_llm())
        gateway = await starter.gateway(
            llm.address,
            first_message_ms=5_000,
            tenants=tenants(*names),
            **UNLIMITED,
        )
        askers = [await stack.enter_async_context(asking(gateway.spec.address, f"key-{name}")) for name in ("a0", "b")]
        yield gateway, *askers


def _requests(times: int, **fields: object) -> bytes:
    """The fields so many times: on the wire, one message after the other is one with all of their elements."""
    return pb.GenerateRequest(**fields).SerializeToString() * times


_USER = chat_pb2.Message(role=chat_pb2.ROLE_USER)
_MESSAGES = {
    "4 MiB of empty messages": (lambda: b"\x0a\0" * (MAX_MESSAGE_BYTES // 2), "messages: at most 256, got 257"),
    "700,000 messages": (lambda: _requests(700_000, messages=[_USER]), "messages: at most 256, got 257"),
    "100,000 tools": (lambda: _requests(100_000, tools=[chat_pb2.Tool(name="t")]), "tools: at most 512, got 513"),
    "100,000 stop strings": (
        lambda: _requests(1, sampling=chat_pb2.Sampling(stop=["x"] * 100_000)),
        "sampling.stop: at most 10000, got 10001",
    ),
    "100,000 pictures": (lambda: _requests(100_000, images=[pb.Image(data=b"x")]), "images: at most"),
    "100,000 parts": (
        lambda: _requests(1, messages=[chat_pb2.Message(role=2, parts=[chat_pb2.Part(text="x")] * 100_000)]),
        "messages[0].parts: at most 256, got 257",
    ),
    "100,000 levels": (lambda: b"\x0b" * 100_000 + b"\x0c" * 100_000, "a well-formed message"),
}


@pytest.mark.parametrize("kind", _MESSAGES)
async def test_a_message_of_too_many_elements_is_refused_before_it_becomes_objects(
    scene: _Scene, report: Report, kind: str
) -> None:
    (gateway, hostile, b), (make, refusal) = scene, _MESSAGES[kind]
    raw = await asyncio.to_thread(make)
    generate = hostile.channel.unary_stream("/hedgerow.gateway.v1.GatewayService/Generate")
    with report.case(43, f"a gRPC message of {len(raw) / _MIB:.1f} MiB: {kind}") as row:
        assert (await hostile.ask()).ok
        forget_peak(gateway)
        before = peak_mib(gateway)
        async with asking_beside(b, _LEAST_BESIDE) as outcomes:
            began = time.perf_counter()
            call = generate(raw, metadata=hostile.metadata, timeout=60)
            code, details = await call.code(), await call.details()
            seconds = time.perf_counter() - began
        row.count(*outcomes)
        assert code.value[0] == code_pb2.INVALID_ARGUMENT, (code, details)
        assert refusal in details
        assert [each for each in outcomes if not each.ok] == []
        row.measured("refused after", seconds * 1000, 250)
        allowed = 2 * len(raw) / _MIB + 8  # and what the other calls need
        row.measured("peak memory", peak_mib(gateway) - before, allowed, " MiB", slack=2)


async def test_messages_that_are_one_byte_short_share_the_room_of_bodies(
    scene: _Scene, report: Report, full_size: bool
) -> None:
    (gateway, hostile, b), each = scene, 12 if full_size else 4
    with report.case(
        44, f"{each * _HOSTILE} gRPC messages of 4 MiB, each one byte short, of {_HOSTILE} tenants"
    ) as row:
        forget_peak(gateway)
        async with asking_beside(b, _LEAST_BESIDE) as outcomes:
            ended = await asyncio.gather(
                *(
                    short_messages(gateway.spec.address, f"key-a{number}", each, MAX_MESSAGE_BYTES)
                    for number in range(_HOSTILE)
                )
            )
        row.count(*outcomes)
        ended_with = set(itertools.chain(*ended))
        assert ended_with == {(code_pb2.RESOURCE_EXHAUSTED, True), (code_pb2.DEADLINE_EXCEEDED, False)}
        assert [each for each in outcomes if not each.ok] == []
        row.measured("resident memory", peak_mib(gateway), container_mib("gateway"), " MiB", slack=1)
        assert (await hostile.ask("x " * 100_000)).ok  # the room is there again


async def test_health_checks_that_are_one_byte_short_hold_bounded_memory(
    scene: _Scene, report: Report, full_size: bool
) -> None:
    """The callers have no key, and their own connections."""
    (gateway, _, b), (connections, each) = scene, (8, 100) if full_size else (2, 20)
    with report.case(44, f"{connections * each} health checks of 4 MiB without a key, each one byte short") as row:
        forget_peak(gateway)
        async with asking_beside(b, _LEAST_BESIDE) as outcomes, asking_health(gateway) as checked:
            address = gateway.spec.address
            short = [short_messages(address, "", each, MAX_MESSAGE_BYTES, HEALTH) for _ in range(connections)]
            ended = set(itertools.chain(*await asyncio.gather(*short)))
        row.count(*outcomes)
        assert ended == {(code_pb2.RESOURCE_EXHAUSTED, True), (code_pb2.DEADLINE_EXCEEDED, False)}
        assert checked
        assert set(checked) == {health_pb2.HealthCheckResponse.SERVING}
        row.measured("resident memory", peak_mib(gateway), container_mib("gateway"), " MiB", slack=1)


@asynccontextmanager
async def asking_health(gateway: ServiceProcess) -> AsyncIterator[list[int]]:
    """A probe asks inside, each time on a connection of its own, as an orchestrator does; the answers."""
    answers = list[int]()

    async def probe() -> None:
        while True:
            async with grpc.aio.insecure_channel(gateway.spec.address) as channel:
                health: Any = health_pb2_grpc.HealthStub(channel)
                answers.append((await health.Check(health_pb2.HealthCheckRequest(), timeout=5)).status)
            await asyncio.sleep(0.1)

    probing = asyncio.create_task(probe())
    try:
        yield answers
    finally:
        probing.cancel()
        if error := (await asyncio.gather(probing, return_exceptions=True))[0]:
            assert isinstance(error, asyncio.CancelledError), error
