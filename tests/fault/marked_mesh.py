"""One process of every kind, on its real engine and under strace, with a marker in its secrets."""

from __future__ import annotations

import asyncio
import dataclasses
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from launcher.processes import ServiceSpec, free_port
from services.runtime.process.quiet import SILENT
from tests.fault.markers import MARK, Provider, echoing_provider
from tests.fault.mesh import Processes
from tests.forked import ServiceProcess
from tests.integration.collector import Collector, collecting
from tests.keys import digest
from tests.models import MODELS
from tests.watching import strangers, watched

ROOT = Path(__file__).parents[2]
KEY = f"{MARK}-key"
_MODEL_CACHE = Path("~/.cache/hedgerow").expanduser()  # made once, and not for this test alone
_TOPOLOGY = 'services: {llm: {endpoints: [{address: "127.0.0.1:1"}]}}'
_GONE = "127.0.0.1:1"  # a port without a listener


@dataclasses.dataclass
class MarkedMesh:
    """The processes by service, and everything that they have sent or written."""

    starter: Processes
    folder: Path
    collector: Collector
    provider: Provider
    processes: dict[str, ServiceProcess] = dataclasses.field(default_factory=dict)
    began: float = dataclasses.field(default_factory=time.monotonic)
    _metrics: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def home(self) -> Path:
        """The folder that the processes run in, and the home of their user."""
        return self.folder / "home"

    async def start(self, name: str, **settings: object) -> str:
        """Start a service, and return its address; `name` is the service's, with a `-` and a suffix if there are
        several."""
        self._metrics[name] = f"127.0.0.1:{free_port()}"
        usual = {"otlp_endpoint": f"http://{self.collector.address}", "metrics_address": self._metrics[name]}
        self.processes[name] = await self.starter.start(name.partition("-")[0], **usual, **settings)
        return self.processes[name].spec.address

    async def metrics(self) -> dict[str, bytes]:
        """The metrics page of each."""

        def read(address: str) -> bytes:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as response:
                return bytes(response.read())

        return {f"{name}'s metrics": await asyncio.to_thread(read, at) for name, at in self._metrics.items()}

    def strangers(self) -> dict[str, set[str]]:
        """The addresses beyond loopback that each process has called, where it has called any."""
        records = self.folder.glob("*.strace")
        return {record.stem: found for record in records if (found := strangers(record))}

    def dress(self, spec: ServiceSpec) -> ServiceSpec:
        return watched(dataclasses.replace(spec, folder=self.home), self.folder / f"{spec.name}.strace")


@asynccontextmanager
async def marked_mesh(starter: Processes, folder: Path) -> AsyncIterator[MarkedMesh]:
    """All but vLLM, which takes half a minute: `start_vllm`."""
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(echoing_provider())
        mesh = MarkedMesh(starter, folder, await stack.enter_async_context(collecting()), provider)
        mesh.home.mkdir()
        starter.dress = mesh.dress
        # The telemetry settings of this process, which has imported the services, are not inherited.
        starter.environment = {"HOME": str(mesh.home), "PYTHONPATH": str(ROOT), **dict.fromkeys(SILENT, "")}
        (folder / "topology.yaml").write_text(_TOPOLOGY)
        url = f"http://{provider.address}/v1"
        echo, faulty, cache, router, vision, audio, _ = await asyncio.gather(
            mesh.start("llm", engine="openai", openai__base_url=url, openai__model="m", openai__api_key=MARK),
            mesh.start("faulty_llm", secret=MARK),
            mesh.start("cache", database=str(folder / "cache.db"), model_cache=str(_MODEL_CACHE)),
            mesh.start("router", models=_CATALOGUE, redis_url=f"redis://:{MARK}@{_GONE}/0"),
            mesh.start("vision", models_dir=str(MODELS), default_model="demo-vision"),
            mesh.start("audio", model=str(MODELS / "demo-whisper")),
            mesh.start("control", topology=str(folder / "topology.yaml")),
        )
        await mesh.start(
            "gateway",
            llm_addresses={"echo": echo, "faulty": faulty},
            cache_address=cache,
            router_address=router,
            vision_address=vision,
            audio_address=audio,
            tenants={"acme": {"keys": [digest(KEY)]}},
            redis_url=f"redis://user:{MARK}@{_GONE}/0?client_name={MARK}",
            breaker={"in_a_row": 1_000, "min_calls": 1_000},  # every failure is to happen
        )
        yield mesh


_CATALOGUE = [{"name": "echo", "tier": "fast", "context_tokens": 100_000}]


async def start_vllm(mesh: MarkedMesh) -> None:
    """A model of the demo's, with the processes that vLLM starts."""
    settings = {"vllm__max_model_len": 512, "vllm__enforce_eager": "true", "vllm__max_num_seqs": 4}
    await mesh.start("llm-vllm", vllm__model=str(MODELS / "demo-llm-draft"), **settings)
