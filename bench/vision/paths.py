"""The ways to have a picture named, each in a process of its own: the model itself, the service, an idle service."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import yaml

from hedgerow.channel import open_channel
from hedgerow.vision.v1 import vision_pb2
from launcher.processes import ServiceProcess, ServiceSpec, free_port
from tests.models import MODELS, SAMPLES

REPOSITORY = Path(__file__).parents[2]
DEMO = MODELS / "demo-vision"
CHANNELS = 4  # a service takes only so many calls on one
THREADS = 1  # of a call of the model: the other cores decode
_START_S = 60.0
_REPLY_S = 600.0  # TensorRT may have engines to build
_CLASSIFY = "/hedgerow.vision.v1.VisionService/Classify"


def pictures() -> list[Path]:
    """What is sent: a PNG, a JPEG and a WebP."""
    samples = SAMPLES
    return [samples / name for name in ("red-circle.png", "blue-star.jpg", "yellow-triangle.webp")]


class Asked(Protocol):
    """A way to have pictures named."""

    async def single(self, picture: int, count: int) -> list[float]:
        """Milliseconds of each of so many calls with one picture, one after the other."""
        ...


class BareModel:
    """`bench.vision.bare`, loaded."""

    def __init__(self, process: asyncio.subprocess.Process):
        self._process = process

    async def single(self, picture: int, count: int) -> list[float]:
        # It is told of each when the last is done, so it sleeps in between, as a service does: a processor that had a
        # rest is slower for a while.
        return [(await self._do("single", picture=picture, count=1))[0] for _ in range(count)]

    async def without_rest(self, picture: int, count: int) -> list[float]:
        """Milliseconds of each of so many pictures in a loop that does nothing else."""
        return list(await self._do("single", picture=picture, count=count))

    async def batched(self, size: int, threaded: bool, seconds: float) -> float:
        """Images a second."""
        return float(await self._do("batched", size=size, threaded=threaded, seconds=seconds))

    async def engines(self) -> list[dict[str, Any]]:
        """The speed of each file in each precision."""
        return list(await self._do("engines"))

    async def _do(self, what: str, **arguments: object) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        # The time of a call is taken over there: this process and its pipes have no part in it.
        self._process.stdin.write(json.dumps({"do": what, **arguments}).encode() + b"\n")
        return json.loads(await asyncio.wait_for(self._process.stdout.readline(), _REPLY_S))


@asynccontextmanager
async def bare_model(log_dir: Path, model: Path = DEMO) -> AsyncIterator[BareModel]:
    """Start it, wait until it is warm, and stop it in the end."""
    arguments = (str(model), str(THREADS), *map(str, pictures()))
    with (log_dir / "bare.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.vision.bare", *arguments), stdin=PIPE, stdout=PIPE, stderr=log
        )
    assert process.stdin
    assert process.stdout
    try:
        if not await asyncio.wait_for(process.stdout.readline(), _START_S):
            raise RuntimeError((log_dir / "bare.log").read_text())
        yield BareModel(process)
    finally:
        process.stdin.close()
        await process.wait()


class Remote:
    """Asks a VisionService. Requests are made before, replies read after the clock runs: what is timed is the call."""

    def __init__(self, channels: Sequence[Any], together: int = 1, files: Sequence[Path] = ()):
        """`together`: pictures in a request. `files`: which; without any, those of `pictures()`."""
        self._channels, self._together = channels, together
        self._methods: Any = [channel.unary_unary(_CLASSIFY) for channel in channels]
        files = files or pictures()
        images = itertools.cycle(vision_pb2.Image(data=path.read_bytes()) for path in files)
        self._requests = [
            vision_pb2.ClassifyRequest(images=itertools.islice(images, together)).SerializeToString() for _ in files
        ]
        self.timings: list[vision_pb2.Timing] = []

    def together(self, pictures: int) -> Remote:
        """The same service, asked with so many pictures in a request."""
        return Remote(self._channels, pictures)

    def with_pictures(self, files: Sequence[Path]) -> Remote:
        """The same service, asked with other pictures."""
        return Remote(self._channels, files=files)

    async def single(self, picture: int, count: int) -> list[float]:
        spent, replies = [], []
        for _ in range(count):
            began = time.perf_counter()
            replies.append(await self._methods[0](self._requests[picture], timeout=10))
            spent.append((time.perf_counter() - began) * 1000)
        self.timings += [vision_pb2.ClassifyResponse.FromString(reply).timing for reply in replies]
        return spent

    async def loaded(self, callers: int, seconds: float) -> float:
        """Images a second of so many callers, each with its next picture as soon as the last is named."""
        requests, done, began = itertools.cycle(self._requests), 0, time.perf_counter()

        async def caller(method: Any) -> None:
            nonlocal done
            while time.perf_counter() - began < seconds:
                await method(next(requests), timeout=10)
                done += self._together

        async with asyncio.TaskGroup() as group:
            for _, method in zip(range(callers), itertools.cycle(self._methods), strict=False):
                group.create_task(caller(method))
        return done / (time.perf_counter() - began)


class WithoutRest:
    """The model itself in a loop that does nothing else."""

    def __init__(self, bare: BareModel):
        self.single = bare.without_rest


class Services(AsyncExitStack):
    """Starts services, and stops them all in the end."""

    def __init__(self, folder: Path):
        super().__init__()
        self._folder = folder

    async def idle(self) -> Remote:
        """`bench.vision.idle`."""
        address = f"127.0.0.1:{free_port()}"
        return await self._serving("bench.vision.idle", address, {"HEDGEROW_IDLE_VISION_ADDRESS": address})

    async def vision(self, name: str, model: Path = DEMO, **batching: object) -> Remote:
        """The vision service, with the model's `batching` but for what is given."""
        address, folder = f"127.0.0.1:{free_port()}", self._folder / name
        shutil.copytree(model, folder / model.name)
        manifest = yaml.safe_load((folder / model.name / "model.yaml").read_text())
        manifest["batching"].update(batching)
        (folder / model.name / "model.yaml").write_text(yaml.safe_dump(manifest))
        settings = {"ADDRESS": address, "MODELS_DIR": str(folder), "THREADS": str(THREADS)}
        environment = {f"HEDGEROW_VISION_{key}": value for key, value in settings.items()}
        return await self._serving("services.vision", address, environment)

    async def models(self, folder: Path) -> Remote:
        """The vision service on a folder of models, with its own defaults."""
        address = f"127.0.0.1:{free_port()}"
        environment = {"HEDGEROW_VISION_ADDRESS": address, "HEDGEROW_VISION_MODELS_DIR": str(folder)}
        return await self._serving("services.vision", address, environment)

    async def _serving(self, module: str, address: str, environment: dict[str, str]) -> Remote:
        spec = ServiceSpec(f"{module}-{address.rpartition(':')[2]}", module, address, environment)
        process = ServiceProcess(spec, self._folder)
        self.push_async_callback(process.stop)
        await process.wait_serving(_START_S)
        return Remote([await self.enter_async_context(open_channel(address)) for _ in range(CHANNELS)])
