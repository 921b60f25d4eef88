"""The composition root of the vision service."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial

from google.protobuf.descriptor import ServiceDescriptor

from hedgerow.vision.v1 import vision_pb2
from services.runtime.process import serve
from services.runtime.process.cores import usable_cores
from services.vision.config import VisionSettings
from services.vision.engine import VisionEngine
from services.vision.engines import open_engine
from services.vision.files import Trust
from services.vision.manifest import Manifest
from services.vision.pictures import Pictures
from services.vision.repository import Repository
from services.vision.servicer import VisionServicer

_SERVICE = vision_pb2.DESCRIPTOR.services_by_name["VisionService"]
_log = logging.getLogger("services.vision")


@asynccontextmanager
async def assemble(settings: VisionSettings) -> AsyncIterator[Mapping[ServiceDescriptor, VisionServicer]]:
    """The service, its models loaded and warm. Exits the process with 2 when there is no model to serve with."""
    # All cores: while the engine has nothing to do its threads sleep, and pictures are decoded. With half of two cores
    # EfficientNet-Lite0 took 1.5 times as long for one picture, and named a fifth fewer under load.
    threads = settings.threads or usable_cores()
    opener = partial(_open_engine, Trust(settings.models_dir, settings.engines, settings.digests))
    repository = Repository(settings.models_dir, settings.default_model, threads, settings.max_queue, opener)
    pictures = Pictures(settings.decode_threads, settings.max_image_bytes, settings.max_pixels)
    try:
        await repository.scan()
        _check(repository, settings)
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(repository.watch(settings.rescan_ms))
            yield {_SERVICE: VisionServicer(repository, pictures, settings)}
            watching.cancel()
    finally:
        await repository.close()
        pictures.close()


def _open_engine(trust: Trust, manifest: Manifest, threads: int) -> VisionEngine:
    return open_engine(trust.read(manifest.file), manifest, threads)


def _check(repository: Repository, settings: VisionSettings) -> None:
    """Check that there are models, and the default one. A broken model does not stop the others."""
    loaded = [model.name for model in repository.models()]
    if not loaded:
        _log.error("models_dir: a folder with at least 1 model that can be loaded, got %s", settings.models_dir)
        raise SystemExit(2)
    if repository.default not in loaded:
        _log.error("default_model: one of %s, got %s", ", ".join(loaded), settings.default_model)
        raise SystemExit(2)


if __name__ == "__main__":
    serve.main("vision", VisionSettings, [_SERVICE], assemble)
