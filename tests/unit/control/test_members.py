"""Members of a service, those that clients get, and what stands when a name cannot be looked up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from services.control.members import Health, Member, ResolvedNames, identity, members, seen
from services.control.topology import MeshService, ServiceEndpoint
from tests.clock import on_paused_loop

ONE, TWO = ServiceEndpoint(address="10.0.0.1:50051"), ServiceEndpoint(address="10.0.0.2:50051", region="west", weight=3)


def nowhere(name: str) -> tuple[str, ...]:
    return ()


def test_a_name_stands_for_all_its_addresses():
    named = ServiceEndpoint(address="cache.mesh:50051", region="west", zone="a", build="canary", weight=2)
    found = members([named, ONE], {"cache.mesh": ("10.0.1.1", "fd00::1")}.__getitem__)
    assert [each.address for each in found] == ["10.0.1.1:50051", "[fd00::1]:50051", "10.0.0.1:50051"]
    assert found[0] == Member("10.0.1.1", 50051, "west", "a", "canary", 2)


def test_an_address_in_brackets_needs_no_look_up():
    found = members([ServiceEndpoint(address="[fd00::7]:50051")], nowhere)
    assert (found[0].host, found[0].port) == ("fd00::7", 50051)


def test_an_endpoint_that_is_named_twice_counts_once_as_first_named():
    found = members([TWO, ServiceEndpoint(address="cache.mesh:50051")], lambda _: ("10.0.0.2", "10.0.0.3"))
    assert [(each.host, each.weight) for each in found] == [("10.0.0.2", 3), ("10.0.0.3", 1)]


def test_only_those_that_serve_are_in_service():
    healths = (Health.SERVING, Health.NOT_SERVING, Health.UNREACHABLE, Health.UNKNOWN)
    found = members([ServiceEndpoint(address=f"10.0.0.{n}:1") for n in range(4)], nowhere)
    with_health = seen(found, {each.address: health for each, health in zip(found, healths, strict=True)})
    assert [each.in_service for each in with_health] == [True, False, False, False]


def test_a_service_has_the_identity_of_its_name_up_to_the_first_dash_unless_set():
    assert identity("llm-quality", MeshService(endpoints=(ONE,))) == "llm"
    assert identity("llm-quality", MeshService(endpoints=(ONE,), identity="gateway")) == "gateway"


class ScriptedResolver:
    """Resolves each name as scripted: an empty answer is an error, None never resolves."""

    def __init__(self, **addresses: Sequence[str] | None):
        self.addresses = addresses

    async def __call__(self, name: str) -> Sequence[str]:
        answer = self.addresses[name]
        if answer is None:
            await asyncio.Event().wait()
        if not answer:
            raise OSError("Name or service not known")
        return answer or ()


async def test_a_name_has_all_its_addresses_each_once_and_in_order_and_the_last_stand_when_a_look_up_fails():
    resolver = ScriptedResolver(cache=["10.0.0.2", "10.0.0.1", "10.0.0.2"], never=[])
    names = ResolvedNames(1, resolver)
    assert await names.refresh(["cache", "never"])
    assert (names["cache"], names["never"]) == (("10.0.0.1", "10.0.0.2"), ())
    assert not await names.refresh(["cache"]), "nothing has changed"
    resolver.addresses["cache"] = ["10.0.0.1", "10.0.0.3"]
    assert await names.refresh(["cache"])
    resolver.addresses["cache"] = []
    assert not await names.refresh(["cache"])
    assert names["cache"] == ("10.0.0.1", "10.0.0.3")


def test_a_slow_lookup_fails_and_delays_no_other():
    async def both() -> tuple[tuple[str, ...], tuple[str, ...]]:
        resolver = ScriptedResolver(cache=["10.0.0.1"], router=["10.0.0.9"])
        names = ResolvedNames(1, resolver)
        await names.refresh(["cache", "router"])
        resolver.addresses |= {"cache": None, "router": ["10.0.0.8"]}
        await names.refresh(["cache", "router"])
        return names["cache"], names["router"]

    assert on_paused_loop(both()) == (("10.0.0.1",), ("10.0.0.8",))
