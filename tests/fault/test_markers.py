"""Callers' content is in no log, span, metric or crash report of our processes, and these connect to no address beyond
the mesh."""

from __future__ import annotations

import asyncio
import resource
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from hedgerow.audio.v1 import audio_pb2
from hedgerow.cache.v1 import cache_pb2
from hedgerow.channel import open_channel
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.llm.v1 import llm_pb2
from hedgerow.router.v1 import router_pb2
from hedgerow.vision.v1 import vision_pb2
from tests.fault.asking import Asker, asking, question
from tests.fault.marked_mesh import KEY, MarkedMesh, marked_mesh, start_vllm
from tests.fault.markers import KINDS, MARK, files, marked, places
from tests.fault.mesh import Processes
from tests.fault.report import Report, Row
from tests.models import SAMPLES
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]
_PICTURE = (SAMPLES / "red-circle.png").read_bytes()
_RECORDING = (SAMPLES / "capital-of-france.wav").read_bytes()
_SHOWN, _SAID = "red circle", "capital of france"
_HEADERS = (("x-request-id", MARK), ("traceparent", MARK), ("user-agent", MARK), ("x-hedgerow-tenant", MARK))
_CONTRACTS: dict[str, Any] = {
    "gateway": pb,
    "cache": cache_pb2,
    "router": router_pb2,
    "llm": llm_pb2,
    "faulty_llm": llm_pb2,
    "vision": vision_pb2,
    "audio": audio_pb2,
}
_REPORTS_AFTER_S = 12  # ONNX Runtime calls its maker 10 s after its import


@pytest.fixture
def _cores_are_on() -> Iterator[None]:
    """As in a shell that keeps the memory of what crashes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


@pytest_asyncio.fixture(loop_scope="session")
async def running(starter: Processes, tmp_path: Path, _cores_are_on: None) -> AsyncIterator[MarkedMesh]:
    async with marked_mesh(starter, tmp_path) as mesh:
        yield mesh


async def test_data_of_callers_is_in_no_log_and_no_file(running: MarkedMesh, report: Report, full_size: bool):
    with report.case(40, "a marker in every field of every method, in keys, pictures, recordings and errors") as row:
        if full_size:
            await start_vllm(running)
        for name, process in running.processes.items():
            if contract := _CONTRACTS.get(name.partition("-")[0]):
                for service in contract.DESCRIPTOR.services_by_name.values():
                    for method in service.methods:
                        await _call(process.spec.address, method, row)
        async with asking(running.processes["gateway"].spec.address, KEY) as caller:
            await _ask(caller, row)
        assert set(KINDS) <= {question.split()[0] for question in running.provider.asked}
        await until(lambda: _all_traced(running), 15)
        if full_size:
            await until(lambda: time.monotonic() - running.began > _REPORTS_AFTER_S, 60)
        contents = await running.metrics()
        await _end(running)
        contents["spans"] = b"\n".join(running.collector.exports)
        contents |= {name: content for name, content in files(running.folder).items() if _is_shared(name)}
        assert places(contents) == {}
        assert places(contents, [_SAID.encode(), _SHOWN.encode()]) == {}
        assert running.strangers() == {}
        assert not list(running.home.rglob("core*"))
        assert not (running.home / ".cache" / "Microsoft").exists()  # where ONNX Runtime collects before it reports


def _is_shared(name: str) -> bool:
    """Whether the file is there for others than the process that wrote it."""
    return name.endswith(".log") or name.startswith("home/")


async def _call(address: str, method: MethodDescriptor, row: Row) -> None:
    """One method, with the marker wherever it may stand; to the gateway with a key that it knows and one that it does
    not."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    kind = f"{'stream' if method.client_streaming else 'unary'}_{'stream' if method.server_streaming else 'unary'}"
    keys = [KEY, f"unknown {MARK}"] if "gateway" in path else [""]
    async with open_channel(address) as channel:
        for key in keys:
            metadata = (*_HEADERS, ("authorization", f"Bearer {key}")) if key else _HEADERS
            for raw in marked(method.input_type, _example(method)):
                sent: Any = iter([raw]) if method.client_streaming else raw
                call = getattr(channel, kind)(path)(sent, timeout=5, metadata=metadata)
                row.tally(**{"ok" if await _ends_well(call, method) else "failed": 1})


def _example(method: MethodDescriptor) -> Message | None:
    """A request that would be served, where the empty one would not."""
    said = [chat_pb2.Message(role=chat_pb2.ROLE_USER, content=f"Say {MARK}")]
    image = vision_pb2.Image(data=_PICTURE)
    return {
        "gateway.v1.GatewayService.Generate": question("Hello", model="echo", budget_ms=2_000),
        "llm.v1.LLMService.Generate": llm_pb2.GenerateRequest(messages=said),
        "llm.v1.LLMService.CountTokens": llm_pb2.CountTokensRequest(messages=said),
        "vision.v1.VisionService.Classify": vision_pb2.ClassifyRequest(images=[image]),
        "vision.v1.VisionService.Embed": vision_pb2.EmbedRequest(images=[image]),
        "audio.v1.AudioService.Transcribe": audio_pb2.TranscribeRequest(data=_RECORDING),
    }.get(method.full_name.removeprefix("hedgerow."))


async def _ends_well(call: Any, method: MethodDescriptor) -> bool:
    try:
        if not method.server_streaming:
            await call
            return True
        follows = method.name.startswith("Watch")  # which would never end
        while await call.read() is not grpc.aio.EOF and not follows:
            pass
        return True
    except grpc.aio.AioRpcError:
        return False
    finally:
        call.cancel()


async def _ask(caller: Asker, row: Row) -> None:
    """Questions that end in every way that is known."""
    see, hear = [pb.Image(data=_PICTURE)], pb.Audio(data=_RECORDING)
    seen = await _asked(caller, row, f"See {MARK}", images=see)
    heard = await _asked(caller, row, f"Transcribe {MARK}", audio=hear)
    assert _SHOWN in str(seen.final), seen
    assert _SAID in str(heard.final).lower(), heard
    for budget_ms in (1, 12, 40):
        await _asked(caller, row, f"Late {MARK}", images=see, audio=hear, budget_ms=budget_ms)
    await _asked(caller, row, f"Cut {MARK}", images=[pb.Image(data=_PICTURE[:200] + MARK.encode())])
    await _asked(caller, row, f"Cut {MARK}", audio=pb.Audio(data=_RECORDING[:4_000] + MARK.encode() * 500))
    await _asked(caller, row, f"None {MARK}", audio=pb.Audio(data=MARK.encode()))
    await _asked(caller, row, f"What is {MARK} 7 plus 5?")
    await _asked(caller, row, f"What is {MARK} 7 plus 6?", cache=pb.CachePolicy(min_similarity=0.5))
    await _asked(caller, row, f"Secret {MARK}?", model="faulty")
    for kind in KINDS:
        await _asked(caller, row, f"{kind} {MARK} asked")


async def _asked(caller: Asker, row: Row, text: str, **fields: Any) -> Any:
    row.count(outcome := await caller.ask(text, **{"model": "echo", "budget_ms": 10_000, **fields}))
    return outcome


def _all_traced(running: MarkedMesh) -> bool:
    """Whether spans of every service that makes some have come."""
    services = {span.service for spans in running.collector.traces.values() for span in spans}
    return {"gateway", "llm", "cache", "vision", "audio"} <= services


async def _end(running: MarkedMesh) -> None:
    """One process ends by SIGSEGV, the others by SIGTERM, upon which they send their last spans."""
    running.processes["llm"].signal(signal.SIGSEGV)
    await asyncio.gather(*(process.stop() for process in running.processes.values()))
