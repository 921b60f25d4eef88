"""Room for connections."""

from __future__ import annotations

from dataclasses import dataclass, field

from services.gateway.http.server.connection_places import Room


@dataclass(eq=False)
class One:
    """A connection. `closed`: it had to make room."""

    address: str = "10.0.0.1"
    proven: bool = False
    closed: list[bool] = field(default_factory=list)

    def abort(self) -> None:
        self.closed.append(True)


def entered(room: Room, *connections: One) -> list[bool]:
    """Whether each came in. All are idle from then on."""
    took = []
    for connection in connections:
        took.append(room.enter(connection))
        room.idle(connection)
    return took


def test_idle_connections_make_room_and_those_without_a_tenant_first():
    room = Room(3, 9)
    tenants, stranger, other = One(proven=True), One(), One()
    assert entered(room, tenants, stranger, other) == [True, True, True]
    assert entered(room, One()) == [True]
    assert (tenants.closed, stranger.closed, other.closed) == ([], [True], [])
    room.leave(stranger)  # as its socket does when it has gone: the place is given back once
    room.idle(other)
    assert entered(room, One(proven=True), One(proven=True)) == [True, True]
    assert (tenants.closed, other.closed) == ([], [True])
    assert entered(room, One()) == [True]
    assert tenants.closed == [True]


def test_a_connection_with_a_request_under_way_is_not_closed():
    room = Room(2, 9)
    asking, idle = One(), One()
    entered(room, asking, idle)
    room.busy(asking)
    new, late = One(), One()
    assert room.enter(new)
    assert idle.closed
    assert not asking.closed
    assert not room.enter(late)
    room.leave(late)
    room.leave(asking)
    assert room.enter(One())


def test_one_address_does_not_take_every_connection():
    room = Room(4, 2)
    assert entered(room, One("a"), One("a"), One("a"), One("b"), One("b"), One("b")) == [
        *(True, True, False),
        *(True, True, False),
    ]
    assert entered(room, One("c")) == [True]
