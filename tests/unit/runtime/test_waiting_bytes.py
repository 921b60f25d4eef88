"""WaitingBytes for requests that wait."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from services.runtime.errors import Exhausted
from services.runtime.policy.waiting_bytes import WaitingBytes


def test_a_flood_of_one_tenant_leaves_room_for_another() -> None:
    room = WaitingBytes(1_000)
    with ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(room.hold("acme", 10))
        with pytest.raises(Exhausted), room.hold("acme", 10):
            pass
        for _ in range(25):
            stack.enter_context(room.hold("globex", 10))
        with pytest.raises(Exhausted), room.hold("globex", 10):
            pass
        stack.enter_context(room.hold("initech", 10))


def test_room_is_free_again_when_a_request_ends_however_it_ends() -> None:
    room = WaitingBytes(100)
    for _ in range(10):
        with pytest.raises(RuntimeError), room.hold("acme", 50):
            raise RuntimeError
    with room.hold("acme", 50):
        pass
    assert (room._taken, room._held) == (0, {})
