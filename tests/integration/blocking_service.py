"""A service that blocks its event loop each second: on a busy machine the watch may come when a block is over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hedgerow.vision.v1 import vision_pb2
from services.runtime.process import serve
from services.vision.config import VisionSettings


def reads_a_slow_disk() -> None:
    time.sleep(0.5)


async def again_and_again() -> None:
    while True:
        reads_a_slow_disk()
        await asyncio.sleep(1)


@asynccontextmanager
async def assemble(settings: VisionSettings) -> AsyncIterator[dict[Any, Any]]:
    reading = asyncio.create_task(again_and_again())
    yield {}
    reading.cancel()


if __name__ == "__main__":
    serve.main("vision", VisionSettings, [vision_pb2.DESCRIPTOR.services_by_name["VisionService"]], assemble)
