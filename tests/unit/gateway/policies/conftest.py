from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.unit.gateway.policies.limiting import WAITING


@pytest.fixture
async def nobody_waits_on() -> AsyncIterator[None]:
    """Requests that `waiting` has left at a limiter go when the test is over."""
    yield
    for task in WAITING:
        task.cancel()
    await asyncio.gather(*WAITING, return_exceptions=True)
    WAITING.clear()
