"""A scripted service, and the wire to it."""

from __future__ import annotations

import pytest

from tests.unit.runtime.rpc.standing.wire import Wire
from tests.unit.runtime.rpc.transports import Scripted


@pytest.fixture
def service() -> Scripted:
    return Scripted()


@pytest.fixture
async def wire(service: Scripted) -> Wire:
    made = Wire(service)
    made.down()  # HELLO
    return made
