"""One gateway that stores responses, before a provider that records what it gets."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import openai
import pytest
import pytest_asyncio

from tests.integration.stored_responses.clients import TENANTS, client_of
from tests.integration.unchanged.transparent import Transparent, transparent_gateway
from tests.recording_provider import RecordingProvider


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Transparent]:
    folder = tmp_path_factory.mktemp("logs")
    async with transparent_gateway(folder, responses__ttl_ms="600000", tenants=json.dumps(TENANTS)) as running:
        yield running


@pytest.fixture
def provider(served: Transparent) -> RecordingProvider:
    served.provider.reset()
    return served.provider


@pytest_asyncio.fixture(loop_scope="session")
async def client(served: Transparent) -> AsyncIterator[openai.AsyncOpenAI]:
    async with client_of(served, "acme") as made:
        yield made
