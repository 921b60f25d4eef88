"""Slots of connections."""

from __future__ import annotations

from dataclasses import dataclass, field

from services.gateway.http.server.connection_slots import ConnectionSlots


@dataclass(eq=False)
class One:
    """A connection. `closed`: it lost its slot."""

    address: str = "10.0.0.1"
    authenticated: bool = False
    closed: list[bool] = field(default_factory=list)

    def abort(self) -> None:
        self.closed.append(True)


def entered(slots: ConnectionSlots, *connections: One) -> list[bool]:
    """Whether each came in. All are idle from then on."""
    took = []
    for connection in connections:
        took.append(slots.acquire(connection))
        slots.idle(connection)
    return took


def test_idle_connections_make_room_and_those_without_a_tenant_first():
    slots = ConnectionSlots(3, 9)
    tenants, stranger, other = One(authenticated=True), One(), One()
    assert entered(slots, tenants, stranger, other) == [True, True, True]
    assert entered(slots, One()) == [True]
    assert (tenants.closed, stranger.closed, other.closed) == ([], [True], [])
    slots.release(stranger)  # as its socket does when it has gone: the slot is released once
    slots.idle(other)
    assert entered(slots, One(authenticated=True), One(authenticated=True)) == [True, True]
    assert (tenants.closed, other.closed) == ([], [True])
    assert entered(slots, One()) == [True]
    assert tenants.closed == [True]


def test_a_connection_with_a_request_under_way_is_not_closed():
    slots = ConnectionSlots(2, 9)
    asking, idle = One(), One()
    entered(slots, asking, idle)
    slots.busy(asking)
    new, late = One(), One()
    assert slots.acquire(new)
    assert idle.closed
    assert not asking.closed
    assert not slots.acquire(late)
    slots.release(late)
    slots.release(asking)
    assert slots.acquire(One())


def test_one_address_does_not_take_every_connection():
    slots = ConnectionSlots(4, 2)
    assert entered(slots, One("a"), One("a"), One("a"), One("b"), One("b"), One("b")) == [
        *(True, True, False),
        *(True, True, False),
    ]
    assert entered(slots, One("c")) == [True]
