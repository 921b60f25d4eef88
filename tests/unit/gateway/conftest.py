from __future__ import annotations

import pytest

from tests.clock import PausedClock


@pytest.fixture
def clock() -> PausedClock:
    return PausedClock()
