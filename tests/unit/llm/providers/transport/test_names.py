"""Addresses that are known before a connection needs them."""

from __future__ import annotations

import asyncio
import socket

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from services.llm.providers.transport.names import AGAIN_S, USABLE_S, FreshNames

pytestmark = pytest.mark.paused


class Scripted(AbstractResolver):
    """Resolves as scripted, after a second; counts the calls."""

    def __init__(self) -> None:
        self.addresses = ["10.0.0.1", "10.0.0.2"]
        self.asked = 0
        self.away = False

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked += 1
        await asyncio.sleep(1)
        if self.away:
            raise OSError("no such host")
        return [
            ResolveResult(hostname=host, host=each, port=port, family=family, proto=0, flags=0)
            for each in self.addresses
        ]

    async def close(self) -> None:
        pass


async def took(names: FreshNames) -> tuple[float, list[str]]:
    loop = asyncio.get_running_loop()
    began = loop.time()
    found = await names.resolve("provider.test", 443)
    return loop.time() - began, [each["host"] for each in found]


async def test_the_first_lookup_waits_and_none_after_it_while_addresses_are_renewed() -> None:
    inner = Scripted()
    names = FreshNames(inner)
    waited = [waited_s for waited_s, _ in await asyncio.gather(*(took(names) for _ in range(5)))]
    assert inner.asked == 1, "one look-up for all"
    assert waited == [pytest.approx(1)] * 5
    inner.addresses = ["10.0.0.3"]
    await asyncio.sleep(AGAIN_S + 2)
    for _ in range(20):
        assert await took(names) == (0, ["10.0.0.3"])
        await asyncio.sleep(USABLE_S)
    await names.close()
    asked = inner.asked
    await asyncio.sleep(10 * AGAIN_S)
    assert inner.asked == asked, "a closed resolver makes no look-up"


async def test_connections_begin_with_each_address_in_turn() -> None:
    names = FreshNames(Scripted())
    await took(names)
    assert {(await took(names))[1][0] for _ in range(2)} == {"10.0.0.1", "10.0.0.2"}
    await names.close()


async def test_addresses_that_cannot_be_renewed_are_used_for_a_limited_time() -> None:
    inner = Scripted()
    names = FreshNames(inner)
    await took(names)
    inner.away = True
    await asyncio.sleep(USABLE_S - 5)
    assert (await took(names))[0] == 0
    await asyncio.sleep(10)
    with pytest.raises(OSError, match="no such host"):
        await took(names)
    await names.close()


async def test_a_name_that_never_was_is_not_asked_for_again() -> None:
    inner = Scripted()
    inner.away = True
    names = FreshNames(inner)
    with pytest.raises(OSError, match="no such host"):
        await took(names)
    await asyncio.sleep(10 * AGAIN_S)
    assert inner.asked == 1
    await names.close()


async def test_after_a_failed_lookup_the_next_one_asks_again() -> None:
    inner = Scripted()
    names = FreshNames(inner)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await took(names)
    assert not names.forget(began), "the name was looked up just now"
    assert (await took(names))[0] == 0
    await asyncio.sleep(1)
    assert names.forget(loop.time())
    assert (await took(names))[0] == 1
    await names.close()


async def test_a_name_is_renewed_once_in_its_time_however_many_connects_failed() -> None:
    inner = Scripted()
    names = FreshNames(inner)
    for _ in range(5):
        await took(names)
        await asyncio.sleep(1)
        names.forget(asyncio.get_running_loop().time())
    await took(names)
    asked = inner.asked
    await asyncio.sleep(10 * AGAIN_S)
    assert inner.asked - asked <= 10, "one chain of renewals"
    await names.close()
    asked = inner.asked
    await asyncio.sleep(10 * AGAIN_S)
    assert inner.asked == asked, "renewals end when the resolver is closed"


async def test_a_cancelled_lookup_cancels_no_other() -> None:
    names = FreshNames(Scripted())
    leaving, staying = asyncio.create_task(took(names)), asyncio.create_task(took(names))
    await asyncio.sleep(0.5)
    leaving.cancel()
    assert (await staying)[1] == ["10.0.0.1", "10.0.0.2"]
    await names.close()
