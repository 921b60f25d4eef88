from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.vision.config import VisionSettings
from services.vision.pictures import Pictures
from services.vision.repository import Repository
from services.vision.servicer import VisionServicer
from tests.unit.vision.test_repository import FakeEngines, put


@pytest.fixture
def engines() -> FakeEngines:
    return FakeEngines()


@pytest.fixture
async def servicer(tmp_path: Path, engines: FakeEngines) -> AsyncIterator[VisionServicer]:
    put(tmp_path, "m")
    put(tmp_path, "plain", labels=None, preprocessing=None)
    repository, pictures = Repository(tmp_path, "", 0, 8, engines), Pictures(2, 1_000_000, 1_000_000)
    await repository.scan()
    engines.opened[0].busy.clear()
    yield VisionServicer(repository, pictures, VisionSettings(max_images=8, max_queue=8))
    for engine in engines.opened:
        engine.gate.set()
    await repository.close()
    pictures.close()
