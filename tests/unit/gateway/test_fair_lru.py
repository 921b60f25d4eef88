from __future__ import annotations

import random

from services.gateway.answer.fair_lru import Room


def test_what_is_put_is_found_by_its_tenant_and_key_alone():
    room: Room[str] = Room(100)
    room.put("a", b"k", "thing", 10)
    assert (room.get("a", b"k"), room.get("a", b"l"), room.get("b", b"k")) == ("thing", None, None)
    assert (room.bytes, len(room)) == (10, 1)


def test_a_thing_takes_the_place_of_the_one_before():
    room: Room[str] = Room(100)
    room.put("a", b"k", "old", 10)
    assert room.put("a", b"k", "new", 20) == ["old"]
    assert (room.get("a", b"k"), room.bytes, len(room)) == ("new", 20, 1)


def test_who_is_alone_may_fill_it_and_loses_what_was_used_longest_ago():
    room: Room[int] = Room(100)
    for number in range(10):
        assert room.put("a", b"%d" % number, number, 10) == []
    room.get("a", b"0")
    assert room.put("a", b"10", 10, 25) == [1, 2, 3]


def test_who_holds_the_most_gives_way_to_everybody_else():
    room: Room[str] = Room(100)
    for number in range(10):
        room.put("a", b"%d" % number, "a's", 10)
    for tenant in ("b", "c"):
        for number in range(10):
            room.put(tenant, b"%d" % number, f"{tenant}'s", 10)
    held = [sum(room.get(tenant, b"%d" % number) is not None for number in range(10)) for tenant in "abc"]
    assert sorted(held) == [3, 3, 4]


def test_what_is_larger_than_all_room_is_not_kept_and_takes_nothings_place():
    room: Room[str] = Room(100)
    room.put("a", b"l", "a's", 40)
    room.put("b", b"k", "b's", 40)
    assert room.put("a", b"k", "huge", 101) == ["huge"]
    assert (room.get("a", b"l"), room.get("b", b"k"), room.bytes) == ("a's", "b's", 80)


def test_the_number_of_things_may_be_limited_too():
    room: Room[int] = Room(100, 2)
    gone = [room.put("a", b"%d" % number, number, 1) for number in range(3)]
    assert gone == [[], [], [0]]


def test_accounts_stay_true_whatever_happens():
    rng, room = random.Random(7), Room[bytes](1_000)
    held: dict[tuple[str, bytes], int] = {}
    for step in range(20_000):
        tenant, key = rng.choice("abcdef"), b"%d" % rng.randrange(40)
        match rng.randrange(10):
            case 0:
                assert (room.pop(tenant, key) is None) == (held.pop((tenant, key), None) is None)
            case 1 if step % 50 == 0:
                assert len(room.pop_tenant(tenant)) == sum(owner == tenant for owner, _ in held)
                held = {place: size for place, size in held.items() if place[0] != tenant}
            case _:
                held[tenant, key] = size = rng.randrange(1, 60)
                room.put(tenant, key, key, size)
                held = {place: size for place, size in held.items() if room.get(*place) is not None}
        assert (room.bytes, len(room)) == (sum(held.values()), len(held))
        assert room.bytes <= 1_000
    assert len(room._notes) < 100  # who holds how much is not noted for ever
