"""Well-formed but hostile requests of one tenant, and their effect on another tenant."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import count, cycle
from urllib.request import urlopen

import grpc
import pytest
import pytest_asyncio

from hedgerow.audio.v1 import audio_pb2
from hedgerow.channel import open_channel
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.router.v1 import router_pb2, router_pb2_grpc
from hedgerow.vision.v1 import vision_pb2
from launcher.processes import free_port
from services.gateway.config import GatewaySettings
from services.runtime.rpc.boundary import Call
from tests import hostile
from tests.fault.apart import apart
from tests.fault.asking import MODEL, Asker, Outcome, asking, times_s
from tests.fault.faulty_llm import Behaviour, faulty_llm, serving
from tests.fault.mesh import UNLIMITED, processes
from tests.fault.report import Report
from tests.forked import ServiceProcess
from tests.keys import tenants

pytestmark = [pytest.mark.measures, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]
_EVERY_S = 0.02  # 50 a second
_AT_ONCE = 64
_MARK = "000000000000"  # stands for what makes each request another
_ALIKE = 8  # of a kind, but for that
_LOOK_S = 0.03  # the service time of a picture or a recording
_PICTURE = pb.Image(data=b"a picture")
_LIMITS = GatewaySettings(llm_addresses={MODEL: "x:1"})
_FORM_BROKEN = grpc.StatusCode.INTERNAL  # the scripted model matches no form: the requests themselves are let in
_USER = chat_pb2.ROLE_USER


class Eyes:
    """A simulated vision service that takes its time."""

    async def Classify(self, request: vision_pb2.ClassifyRequest, call: Call) -> vision_pb2.ClassifyResponse:
        await asyncio.sleep(_LOOK_S)
        seen = vision_pb2.Labels(labels=[vision_pb2.Label(name="fox", score=0.9)])
        return vision_pb2.ClassifyResponse(model="eyes", results=[seen] * len(request.images))


class Ears:
    """A simulated audio service that does."""

    async def Transcribe(
        self, requests: AsyncIterator[audio_pb2.TranscribeRequest], call: Call
    ) -> AsyncIterator[audio_pb2.TranscribeResponse]:
        async for _ in requests:
            pass
        await asyncio.sleep(_LOOK_S)
        summary = audio_pb2.TranscribeSummary(text="What is said?", audio_s=1, speech_s=1)
        yield audio_pb2.TranscribeResponse(summary=summary)


def _asks(number: int, text: str = "Hostile", **fields: object) -> pb.GenerateRequest:
    messages = [chat_pb2.Message(role=_USER, content=f"{text} {number} {_MARK}?")]
    return pb.GenerateRequest(**{"messages": messages, "model": MODEL, **fields})  # type: ignore[arg-type]


def _largest(number: int) -> pb.GenerateRequest:
    content = f"{number} {_MARK} ".ljust(_LIMITS.max_content_bytes, "x")
    frame = '{"type": "object", "description": ""}'
    schema = frame[:-2] + "x" * (_LIMITS.response_format.max_bytes - len(frame)) + frame[-2:]
    stops = ["\U0010ffff" * 64] * 8
    return _asks(
        number,
        messages=[chat_pb2.Message(role=_USER, content=content)],
        response_format=chat_pb2.ResponseFormat(json_schema=schema),
        sampling=chat_pb2.Sampling(stop=stops, max_tokens=4),
    )


Kind = Callable[[int], pb.GenerateRequest]
_SPOKEN = pb.Audio(data=b"a recording")
_IN_THE_GATEWAY: tuple[Kind, ...] = (
    *(lambda n, kind=kind: _asks(n, response_format=kind(n)) for kind in (*hostile.WRONG, *hostile.COSTLY)),
    lambda n: _asks(n, sampling=chat_pb2.Sampling(temperature=math.nan)),
    lambda n: _asks(n, sampling=chat_pb2.Sampling(stop=["x" * 9_999] * 999)),
    lambda n: _asks(n, cache=pb.CachePolicy(min_similarity=math.nan)),
    lambda n: _asks(n, messages=[chat_pb2.Message(role=_USER, content="\0\x1b[2J\u202e\ufeff")] * 64),
    lambda n: _asks(n, messages=[chat_pb2.Message(role=_USER, content=" " * 200_000)]),
    lambda n: _asks(n, tier=2**31 - 1, attempt=2**31 - 1),
)
_IN_THE_CACHE: tuple[Kind, ...] = (_largest,)
_IN_THE_LLM: tuple[Kind, ...] = (
    lambda n: _asks(n, "Refuse this"),
    lambda n: _asks(n, "Break over this"),
)
_HURRIED: tuple[Kind, ...] = tuple(
    lambda n, budget_ms=budget_ms, fields=fields: _asks(n, budget_ms=budget_ms, **fields)
    for budget_ms in (12, 60)
    for fields in ({}, {"images": [_PICTURE]}, {"audio": _SPOKEN}, {"images": [_PICTURE] * 8, "audio": _SPOKEN})
)


_KINDS: Mapping[str, tuple[Kind, ...]] = {
    "engine": _IN_THE_LLM,
    "fields": _IN_THE_GATEWAY,
    "largest": _IN_THE_CACHE,
    "hurried": _HURRIED,
}


@dataclass(frozen=True, slots=True)
class Scene:
    gateway: ServiceProcess
    router: ServiceProcess
    a: Asker
    b: Asker

    async def opened(self) -> dict[str, float]:
        """How often each breaker has opened."""
        address = self.gateway.spec.environment["HEDGEROW_GATEWAY_METRICS_ADDRESS"]
        page = await asyncio.to_thread(lambda: urlopen(f"http://{address}/metrics", timeout=5).read().decode())
        changes = re.findall(r'hedgerow_breaker_changes_total\{backend="(.*)",state="open"\} (\S+)', page)
        return {backend: float(times) for backend, times in changes if float(times)}

    async def failure_rate(self) -> float:
        """The model's failure rate in the router's table."""
        async with open_channel(self.router.spec.address) as channel:
            listed = await router_pb2_grpc.RouterServiceStub(channel).ListModels(
                router_pb2.ListModelsRequest(), timeout=5
            )
            return float(listed.models[0].failure_rate)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def scene(tmp_path_factory: pytest.TempPathFactory, full_size: bool) -> AsyncIterator[Scene]:
    """A gateway with everything behind it, for two tenants; it comes through all of this."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        starter, llm = await enter(processes(tmp_path_factory.mktemp("hostile"))), await enter(faulty_llm())
        eyes = await enter(serving(vision_pb2.DESCRIPTOR.services_by_name["VisionService"], Eyes()))
        ears = await enter(serving(audio_pb2.DESCRIPTOR.services_by_name["AudioService"], Ears()))
        cache, router = await asyncio.gather(starter.start("cache"), starter.router(window_s=2))
        gateway = await starter.gateway(
            llm.address,
            cache_address=cache.spec.address,
            router_address=router.spec.address,
            vision_address=eyes,
            audio_address=ears,
            tenants=tenants("a", "b"),
            metrics_address=f"127.0.0.1:{free_port()}",
            # On a machine without CPU time to spare the cache gets no turn within 200 ms, whichever tenant asks.
            stages={"cache": {"share": 0.2, "cap_ms": 1_000}},
            # Nor are calls fast there, for which an adaptive limit refuses either tenant.
            **({} if full_size else UNLIMITED),
        )
        a, b = [await enter(asking(gateway.spec.address, f"key-{name}")) for name in "ab"]
        llm.behaviour = Behaviour(first_ms=5, refuses="Refuse this", breaks_over="Break over this")
        yield Scene(gateway, router, a, b)


async def _honest(b: Asker, seconds: float) -> list[Outcome]:
    """B asks one question after the other: by model and by class, in words and with pictures or a recording."""
    fields: list[dict[str, object]] = [{}, {"model": ""}, {"images": [_PICTURE]}, {"audio": _SPOKEN}, {}]
    outcomes, until = list[Outcome](), time.monotonic() + seconds
    for number in count():
        if time.monotonic() > until:
            return outcomes
        kind = fields[number % len(fields)]
        outcomes.append(await b.ask(f"Honest {time.monotonic_ns()}?", budget_ms=5_000, **kind))
        await asyncio.sleep(0.005)
    raise AssertionError("unreachable")


async def _hostile(address: str, kinds: str) -> AsyncIterator[grpc.StatusCode]:
    """A asks, 50 times a second; how each call ended."""
    ended: asyncio.Queue[grpc.StatusCode] = asyncio.Queue()
    slots = asyncio.Semaphore(_AT_ONCE)
    requests = _endless([kind(number).SerializeToString() for number in range(_ALIKE) for kind in _KINDS[kinds]])

    async def one(request: bytes) -> None:
        async with slots:
            call = generate(request, timeout=20, metadata=a.metadata)
            try:
                while await call.read() is not grpc.aio.EOF:
                    pass
                ended.put_nowait(grpc.StatusCode.OK)
            except grpc.aio.AioRpcError as error:
                ended.put_nowait(error.code())

    async def flood() -> None:
        for request in requests:
            group.create_task(one(request))
            await asyncio.sleep(_EVERY_S)

    async with asking(address, "key-a") as a, asyncio.TaskGroup() as group:
        generate = a.channel.unary_stream("/hedgerow.gateway.v1.GatewayService/Generate")
        group.create_task(flood())
        while True:
            yield await ended.get()


def _endless(alike: list[bytes]) -> Iterator[bytes]:
    """Requests made beforehand, because making them would take time from the callers that are measured."""
    for number, request in enumerate(cycle(alike)):
        yield request.replace(_MARK.encode(), b"%012d" % number)


@pytest.mark.parametrize(
    ("fault", "kinds", "codes"),
    [
        pytest.param(
            "requests that an engine refuses or breaks on",
            "engine",
            {
                grpc.StatusCode.INVALID_ARGUMENT,
                grpc.StatusCode.INTERNAL,
                grpc.StatusCode.UNAVAILABLE,
            },  # its own breaker
            id="engine",
        ),
        pytest.param(
            "hostile fields: schemas, regular expressions, NaN, control characters",
            "fields",
            {grpc.StatusCode.INVALID_ARGUMENT, _FORM_BROKEN},
            id="fields",
        ),
        pytest.param("the largest requests", "largest", {_FORM_BROKEN}, id="largest"),
        pytest.param(
            "budgets of 12 and 60 ms, with pictures and recordings",
            "hurried",
            {grpc.StatusCode.DEADLINE_EXCEEDED},
            id="hurried",
        ),
    ],
)
async def test_hostile_requests_of_one_tenant_cost_another_nothing(
    scene: Scene, report: Report, full_size: bool, fault: str, kinds: str, codes: set[grpc.StatusCode]
):
    seconds = 20.0 if full_size else 2.0
    await scene.a.until(lambda outcome: outcome.ok, within_s=20)  # its own breaker has closed again
    await _honest(scene.b, 0.3)
    opened, before = await scene.opened(), await _honest(scene.b, min(seconds, 5.0))
    assert all(outcome.whole for outcome in before)
    with report.case(27, f"A, 50/s: {fault}") as row:
        async with apart(_hostile, scene.gateway.spec.address, kinds) as ended:
            await asyncio.sleep(0.3)
            outcomes = await _honest(scene.b, seconds)
        row.count(*outcomes)
        assert len(ended) >= (10 * seconds if full_size else 1)
        assert set(ended) <= codes | {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}, Counter(ended)
        assert all(outcome.whole for outcome in outcomes), [each for each in outcomes if not each.whole][:2]
        assert not any(outcome.decided("breaker") for outcome in outcomes), await scene.opened()
        assert await scene.opened() == opened
        row.measured("model failures at the router", await scene.failure_rate(), 0.05, "", slack=4)
        row.slowed("B's p99", times_s(before), times_s(outcomes))
