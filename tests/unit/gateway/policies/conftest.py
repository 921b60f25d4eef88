from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.unit.gateway.policies.limiting import _WAITING


@pytest.fixture
async def nobody_waits_on() -> AsyncIterator[None]:
    """Requests that `waiting` has left at a limiter go when the test is over."""
    yield
    for task in _WAITING:
        task.cancel()
    await asyncio.gather(*_WAITING, return_exceptions=True)
    _WAITING.clear()
