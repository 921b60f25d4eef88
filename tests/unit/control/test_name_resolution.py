"""Looking names up, and what stands when that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from services.control.name_resolution import Names
from tests.clock import on_paused_loop


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
    names = Names(1, resolver)
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
        names = Names(1, resolver)
        await names.refresh(["cache", "router"])
        resolver.addresses |= {"cache": None, "router": ["10.0.0.8"]}
        await names.refresh(["cache", "router"])
        return names["cache"], names["router"]

    assert on_paused_loop(both()) == (("10.0.0.1",), ("10.0.0.8",))
