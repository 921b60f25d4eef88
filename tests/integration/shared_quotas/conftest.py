"""Two gateways on the test's Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.integration.shared_quotas.parts import Part, taking_part
from tests.redis import RedisProcess


@pytest.fixture
async def parts(redis: RedisProcess) -> AsyncIterator[tuple[Part, Part]]:
    async with taking_part(redis) as first, taking_part(redis) as second:
        yield first, second
