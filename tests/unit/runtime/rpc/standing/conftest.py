"""A scripted service, and the wire to it."""

from __future__ import annotations

import pytest

from launcher.processes import free_port
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


@pytest.fixture
def address() -> str:
    return f"127.0.0.1:{free_port()}"
