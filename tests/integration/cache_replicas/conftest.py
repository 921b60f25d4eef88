"""A Redis of the test's own that keeps its data over a restart, two replicas on it, and a client to look into it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cache_replicas.replicas import Pair, replica
from tests.redis import RedisProcess, redis_server


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisProcess]:
    async with redis_server(tmp_path, appendonly=True) as server:
        yield server


@pytest.fixture
async def pair(redis: RedisProcess) -> AsyncIterator[Pair]:
    async with replica(redis.url) as a, replica(redis.url) as b:
        yield a, b


@pytest.fixture
async def client(redis: RedisProcess) -> AsyncIterator[Any]:
    async with redis.client() as client:
        yield client
