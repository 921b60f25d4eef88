"""Responses in the memory of one gateway: owner, lifetime and eviction."""

from __future__ import annotations

import asyncio

import pytest

from services.gateway.http.stored_responses.memory import MemoryResponses
from services.gateway.http.stored_responses.store import Owner

pytestmark = pytest.mark.paused
ACME, UMBRA = Owner("acme"), Owner("umbra")
KB = 1_000  # what a response counts beside its data


def store(ttl_s: float = 60, tenant_bytes: int = 10 * KB, max_bytes: int = 20 * KB) -> MemoryResponses:
    return MemoryResponses(ttl_s, tenant_bytes, max_bytes)


async def test_a_response_is_found_by_its_owner_alone() -> None:
    responses = store()
    assert await responses.put(ACME, "resp_1", b"data")
    assert await responses.get(ACME, "resp_1") == b"data"
    for other in (UMBRA, Owner("acme", ("anna",))):
        assert await responses.get(other, "resp_1") is None
        assert not await responses.delete(other, "resp_1")
    assert await responses.delete(ACME, "resp_1")
    assert await responses.get(ACME, "resp_1") is None
    assert not await responses.delete(ACME, "resp_1")


async def test_names_of_end_users_do_not_run_into_ids() -> None:
    assert (
        Owner("a", ("b", "c")).storage_name("d")
        != Owner("a", ("b",)).storage_name("c")
        != Owner("a", ("b", "c", "d")).storage_name("")
    )


async def test_a_response_expires_however_often_it_is_used_and_leaves_no_timer() -> None:
    responses = store(ttl_s=10)
    await responses.put(ACME, "resp_1", b"first")
    await asyncio.sleep(6)
    assert await responses.get(ACME, "resp_1")
    await asyncio.sleep(5)
    assert (await responses.get(ACME, "resp_1"), responses.total_bytes) == (None, 0)


async def test_a_response_that_is_stored_again_lives_from_then_on() -> None:
    responses = store(ttl_s=10)
    await responses.put(ACME, "resp_1", b"first")
    await asyncio.sleep(6)
    await responses.put(ACME, "resp_1", b"second")
    await asyncio.sleep(6)
    assert await responses.get(ACME, "resp_1") == b"second"


async def test_a_full_tenant_loses_its_least_recently_used_response_and_no_other_tenants() -> None:
    responses = store(tenant_bytes=6 * KB)
    await responses.put(UMBRA, "resp_0", b"x" * KB)
    for each in "123":
        await responses.put(ACME, each, b"x" * KB)
    await responses.get(ACME, "1")
    await responses.put(ACME, "4", b"x" * KB)
    assert [await responses.get(ACME, each) is not None for each in "1234"] == [True, False, True, True]
    assert await responses.get(UMBRA, "resp_0")


async def test_a_full_memory_takes_from_the_tenant_with_the_most() -> None:
    responses = store(tenant_bytes=8 * KB, max_bytes=10 * KB)
    for each in "1234":
        await responses.put(ACME, each, b"x" * KB)
    for each in "12":
        assert await responses.put(UMBRA, each, b"x" * KB)
    assert [await responses.get(ACME, each) is not None for each in "1234"] == [False, True, True, True]
    assert await responses.get(UMBRA, "1")


async def test_a_response_larger_than_the_store_evicts_no_other() -> None:
    responses = store(tenant_bytes=4 * KB)
    await responses.put(ACME, "small", b"x")
    assert not await responses.put(ACME, "large", b"x" * 4 * KB)
    assert await responses.get(ACME, "small") == b"x"
    assert await responses.get(ACME, "large") is None
