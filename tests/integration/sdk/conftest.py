"""A scripted gateway, and the SDK's asyncio client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import hedgerow
from tests.integration.scripted_gateway import ScriptedGateway, serve_script


@pytest.fixture
async def gateway() -> AsyncIterator[ScriptedGateway]:
    async with serve_script() as served:
        yield served


@pytest.fixture
async def client(gateway: ScriptedGateway) -> AsyncIterator[hedgerow.AsyncClient]:
    async with hedgerow.AsyncClient(gateway.target) as connected:
        yield connected
