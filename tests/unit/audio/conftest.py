"""Fixtures of the audio service's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.unit.audio.clients import START
from tests.unit.audio.scripted import Service


@pytest.fixture
async def service() -> AsyncIterator[START]:
    started: list[Service] = []

    async def start(**settings: Any) -> Service:
        started.append(Service(**settings))
        return started[-1]

    yield start
    for each in started:
        await each.close()
