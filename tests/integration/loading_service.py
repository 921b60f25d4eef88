"""A service that loads for an hour, in a thread, and takes a moment to clear up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hedgerow.vision.v1 import vision_pb2
from services.runtime.process import serve
from services.vision.config import VisionSettings


@asynccontextmanager
async def assemble(settings: VisionSettings) -> AsyncIterator[dict[Any, Any]]:
    try:
        print("loading", flush=True)
        await asyncio.to_thread(time.sleep, 3_600)
        yield {}
    finally:
        print("clearing up", flush=True)
        await asyncio.sleep(0.3)
        print("cleared up", flush=True)


if __name__ == "__main__":
    serve.main("vision", VisionSettings, [vision_pb2.DESCRIPTOR.services_by_name["VisionService"]], assemble)
