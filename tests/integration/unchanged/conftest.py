"""One gateway that changes nothing unless it is asked to, before one provider, for all tests of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from tests.integration.unchanged.transparent import Transparent, transparent_gateway
from tests.recording_provider import RecordingProvider


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Transparent]:
    async with transparent_gateway(tmp_path_factory.mktemp("logs")) as running:
        yield running


@pytest.fixture
def provider(served: Transparent) -> RecordingProvider:
    """As new."""
    served.provider.reset()
    return served.provider


@pytest_asyncio.fixture(loop_scope="session")
async def http(served: Transparent) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=served.url, timeout=20) as client:
        yield client
