"""A service that blocks its event loop once, as soon as it serves."""

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


@asynccontextmanager
async def assemble(settings: VisionSettings) -> AsyncIterator[dict[Any, Any]]:
    asyncio.get_running_loop().call_soon(reads_a_slow_disk)
    yield {}


if __name__ == "__main__":
    serve.main("vision", VisionSettings, [vision_pb2.DESCRIPTOR.services_by_name["VisionService"]], assemble)
