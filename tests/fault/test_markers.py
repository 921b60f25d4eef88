"""What callers send stays between them and the services: it is in no log, span, metric or crash report of our
processes, and none of them speaks to anybody but to us."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import resource
import signal
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
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
from hedgerow.cli.processes import ServiceProcess, ServiceSpec, free_port
from hedgerow.gateway.v1 import gateway_pb2
from hedgerow.llm.v1 import llm_pb2
from hedgerow.router.v1 import router_pb2
from hedgerow.vision.v1 import vision_pb2
from tests.fault.asking import Asker, asking, question
from tests.fault.markers import KINDS, MARK, echoing_provider, files, marked, places
from tests.fault.mesh import Processes
from tests.fault.report import Report, Row
from tests.integration.collector import Collector, collecting
from tests.waiting import until
from tests.watching import strangers, watched

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]
_ROOT = Path(__file__).parents[2]
_MODELS = _ROOT / "models"
_MODEL_CACHE = Path("~/.cache/hedgerow").expanduser()  # made once, and not for this test alone
_KEY = f"{MARK}-key"
_PICTURE = (_MODELS / "samples" / "red-circle.png").read_bytes()
_RECORDING = (_MODELS / "samples" / "capital-of-france.wav").read_bytes()
_SAID = [b"capital of france", b"red circle"]  # what the recording says, and the picture shows
_HEADERS = (("x-request-id", MARK), ("traceparent", MARK), ("user-agent", MARK), ("x-hedgerow-tenant", MARK))


@dataclasses.dataclass
class Watched:
    """Processes of every kind, each under strace, what they wrote, and who they are."""

    folder: Path
    collector: Collector
    processes: dict[str, ServiceProcess]
    metrics: dict[str, str]

    async def read_metrics(self) -> dict[str, bytes]:
        def read(address: str) -> bytes:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as response:
                return bytes(response.read())

        return {name: await asyncio.to_thread(read, address) for name, address in self.metrics.items()}


@pytest.fixture
def _cores_are_on() -> Iterator[None]:
    """As in a shell that keeps the memory of what crashes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


@pytest_asyncio.fixture(loop_scope="session")
async def running(starter: Processes, tmp_path: Path, _cores_are_on: None) -> AsyncIterator[Watched]:
    async with AsyncExitStack() as stack:
        collector = await stack.enter_async_context(collecting())
        provider = await stack.enter_async_context(echoing_provider())
        (home := tmp_path / "home").mkdir()
        (tmp_path / "topology.yaml").write_text('services: {llm: {endpoints: [{address: "127.0.0.1:1"}]}}')

        def dress(spec: ServiceSpec) -> ServiceSpec:
            return watched(dataclasses.replace(spec, folder=home), tmp_path / f"{spec.name}.strace")

        starter.environment, starter.dress = {"HOME": str(home), "PYTHONPATH": str(_ROOT)}, dress
        metrics: dict[str, str] = {}

        async def start(name: str, service: str = "", **settings: object) -> ServiceProcess:
            metrics[name] = f"127.0.0.1:{free_port()}"
            told = {"otlp_endpoint": f"http://{collector.address}", "metrics_address": metrics[name], **settings}
            return await starter.start(service or name, **told)

        openai = {"engine": "openai", "openai__base_url": f"http://{MARK}:{MARK}@{provider}/v1", "openai__model": "m"}
        catalogue = [{"name": "echo", "tier": "fast", "context_tokens": 100_000}]
        names = ("llm", "faulty_llm", "cache", "router", "vision", "audio", "control")
        started = await asyncio.gather(
            start("llm", **openai, openai__api_key=MARK),
            start("faulty_llm", secret=MARK),
            start("cache", database=str(tmp_path / "cache.db"), model_cache=str(_MODEL_CACHE)),
            start("router", models=catalogue, redis_url=f"redis://:{MARK}@127.0.0.1:1/0"),
            start("vision", models_dir=str(_MODELS), default_model="demo-vision"),
            start("audio", model=str(_MODELS / "demo-whisper")),
            start("control", topology=str(tmp_path / "topology.yaml")),
        )
        at = {name: process.spec.address for name, process in zip(names, started, strict=True)}
        digest = hashlib.sha256(_KEY.encode()).hexdigest()
        gateway = await start(
            "gateway",
            llm_addresses={"echo": at["llm"], "faulty": at["faulty_llm"]},
            **{f"{name}_address": at[name] for name in ("cache", "router", "vision", "audio")},
            tenants={"acme": {"keys": [digest]}},
            redis_url=f"redis://user:{MARK}@127.0.0.1:1/0?client_name={MARK}",
        )
        yield Watched(tmp_path, collector, {**dict(zip(names, started, strict=True)), "gateway": gateway}, metrics)


async def test_what_callers_send_is_nowhere_else(running: Watched, report: Report):
    with report.case(40, "a marker in every field of every method, in keys, pictures, recordings and errors") as row:
        for name, module in _CONTRACTS.items():
            for service in module.DESCRIPTOR.services_by_name.values():
                for method in service.methods:
                    await _call(running.processes[name].spec.address, method, row)
        async with asking(running.processes["gateway"].spec.address, _KEY) as caller:
            caller.metadata = (*caller.metadata, *_HEADERS[2:])
            await _ask(caller, row)
        await until(lambda: _told(running.collector), 15)
        told = {f"{name}'s metrics": page for name, page in (await running.read_metrics()).items()}
        await _crash(running)
        told |= {"spans": b"\n".join(running.collector.exports)}
        told |= {name: content for name, content in files(running.folder).items() if _is_told(name)}
        assert places(told) == {}
        assert places(told, _SAID) == {}
        records = running.folder.glob("*.strace")
        met = {record.stem: found for record in records if (found := strangers(record))}
        assert met == {}
        assert not list((running.folder / "home").rglob("core*"))
        assert not (running.folder / "home" / ".cache" / "Microsoft").exists()  # where ONNX Runtime collects
        row.measured("strangers spoken to", len(met), 0, "")


_CONTRACTS: dict[str, Any] = {
    "gateway": gateway_pb2,
    "cache": cache_pb2,
    "router": router_pb2,
    "llm": llm_pb2,
    "faulty_llm": llm_pb2,
    "vision": vision_pb2,
    "audio": audio_pb2,
}


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


async def _call(address: str, method: MethodDescriptor, row: Row) -> None:
    """One method, with the marker wherever it may stand; with and without a key that is known."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    kind = f"{'stream' if method.client_streaming else 'unary'}_{'stream' if method.server_streaming else 'unary'}"
    keys = [_KEY, f"unknown {MARK}"] if "gateway" in path else [""]
    async with open_channel(address) as channel:
        for key in keys:
            metadata = (*_HEADERS, ("authorization", f"Bearer {key}")) if key else _HEADERS
            for raw in marked(method.input_type, _example(method)):
                sent: Any = iter([raw]) if method.client_streaming else raw
                call = getattr(channel, kind)(path)(sent, timeout=3, metadata=metadata)
                row.tally(**{"ok" if await _ended(call, method) else "failed": 1})


async def _ended(call: Any, method: MethodDescriptor) -> bool:
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
    asked: list[dict[str, Any]] = [
        {"text": f"What is {MARK} 7 plus 5?"},
        {"text": f"What is {MARK} 7 plus 6?", "cache": gateway_pb2.CachePolicy(min_similarity=0.5)},
        {"text": f"Secret {MARK}?", "model": "faulty"},
        {"text": f"Late {MARK}?", "budget_ms": 1},
        {"text": f"{MARK}?", "model": MARK},
        {"text": f"See {MARK}", "images": [gateway_pb2.Image(data=_PICTURE)]},
        {"text": f"See {MARK}", "images": [gateway_pb2.Image(data=_PICTURE[:200] + MARK.encode())]},
        {"text": f"See {MARK} late", "images": [gateway_pb2.Image(data=_PICTURE)], "budget_ms": 12},
        {"text": f"Hear {MARK}", "audio": gateway_pb2.Audio(data=_RECORDING)},
        {"text": f"Hear {MARK}", "audio": gateway_pb2.Audio(data=_RECORDING[:4_000] + MARK.encode() * 500)},
        {"text": f"Hear {MARK}", "audio": gateway_pb2.Audio(data=MARK.encode())},
        *({"text": f"{kind} {MARK} asked"} for kind in KINDS),
    ]
    for fields in asked:
        outcome = await caller.ask(**{"model": "echo", "budget_ms": 5_000, **fields})
        row.count(outcome)


async def _told(collector: Collector) -> bool:
    """Whether the spans of what was asked last have come, of all who have some."""
    services = {span.service for spans in collector.traces.values() for span in spans}
    return {"gateway", "llm", "cache", "vision", "audio"} <= services


async def _crash(running: Watched) -> None:
    """One ends as by a fault of its own code; the others are told to stop, and send what spans they have."""
    running.processes["llm"].signal(signal.SIGSEGV)
    await asyncio.gather(*(process.stop() for process in running.processes.values()))


def _is_told(name: str) -> bool:
    """Whether the file is something that people or programs other than the owner are meant to look at."""
    return name.endswith(".log") or name.startswith("home/")
