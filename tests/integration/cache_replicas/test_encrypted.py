"""With a key, neither Redis nor a disk has a question or an answer in clear text; a wrong key costs hits alone."""

from __future__ import annotations

import asyncio
import logging
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from hedgerow.cache.v1 import cache_pb2
from services.cache.answers import Verdict
from services.cache.redis_scripts import ENTRY
from tests.forked import refused_start
from tests.integration.cache_process import CAPITAL, REWORDED, StartCache, lookup, store
from tests.integration.cache_replicas.replicas import replica, up_to_date
from tests.redis import RedisProcess
from tests.unit.cache.conftest import identity

KEY, OTHER = b"k" * 32, b"o" * 32
ASKED, ALIKE = identity("what is the capital of france please"), identity("what is the capital of france really")
ANSWER = b"a secret of acme"


def on_disk(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


async def test_replicas_with_the_key_share_what_redis_cannot_read(
    redis: RedisProcess, client: Any, tmp_path: Path
) -> None:
    async with replica(redis.url, keys=[KEY]) as one, replica(redis.url, keys=[OTHER, KEY]) as two:
        await one.keep(ASKED, ANSWER)
        await up_to_date(one, two)
        assert two.holds() == {ASKED.key: ANSWER}
        assert (await two.look_up(ALIKE, 0.8)).verdict is Verdict.SEMANTIC
        held = b"".join([b"".join(await client.hvals(name)) async for name in client.scan_iter(f"{ENTRY}*")])
    written = held + await asyncio.to_thread(on_disk, tmp_path)
    assert b"partition" in written  # what it is looked for in
    for secret in (ASKED.asked.encode(), b"capital", ANSWER, b"secret"):
        assert secret not in written
    async with replica(redis.url, keys=[KEY]) as again:
        assert again.holds() == {ASKED.key: ANSWER}


@pytest.mark.parametrize("keys", [[OTHER], []], ids=["wrong", "none"])
async def test_a_replica_with_a_wrong_key_misses_logs_it_and_goes_on(
    redis: RedisProcess, keys: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    async with replica(redis.url, keys=[KEY]) as one:
        await one.keep(ASKED, ANSWER)
        with caplog.at_level(logging.ERROR):
            async with replica(redis.url, keys=keys) as stranger:
                assert "1 of 1 entries in Redis cannot be read with this encryption_key" in caplog.text
                assert stranger.holds() == {}
                assert (await stranger.look_up(ASKED)).verdict is Verdict.MISS
                await one.keep(ALIKE, ANSWER)
                await stranger.keep(identity("another thing"), b"theirs")
                await up_to_date(one, stranger)
                assert stranger.holds() == {identity("another thing").key: b"theirs"}
        assert caplog.text.count("an entry cannot be read") == 2  # each of the two says so once
        assert one.holds() == {ASKED.key: ANSWER, ALIKE.key: ANSWER}


async def test_an_entry_copied_over_that_of_another_tenant_is_a_miss(redis: RedisProcess, client: Any) -> None:
    theirs = identity(ASKED.asked, tenant="globex")
    async with replica(redis.url, keys=[KEY]) as one:
        await one.keep(ASKED, ANSWER)
        await one.keep(theirs, b"of globex")
    row = await client.hgetall(ENTRY + ASKED.key)
    await client.hset(ENTRY + theirs.key, mapping={**row, b"tenant": b"globex"})
    async with replica(redis.url, keys=[KEY]) as again:
        assert again.holds() == {ASKED.key: ANSWER}
        assert (await again.look_up(theirs)).verdict is Verdict.MISS


async def test_the_service_keeps_everything_over_a_change_of_keys_and_reports_a_wrong_one(
    start_cache: StartCache, tmp_path: Path
) -> None:
    folder, right, wrong = tmp_path / "kept", b64encode(KEY).decode(), b64encode(OTHER).decode()
    process, cache = await start_cache(database=folder / "cache.db", encryption_key=right)
    await cache.Store(store(CAPITAL, "It is Paris, and a secret."))
    kept = await asyncio.to_thread(on_disk, folder)
    assert len(kept) > 4_096
    for text in (b"capital", b"France", b"Paris", b"secret"):
        assert text not in kept
    assert (await cache.Lookup(lookup(REWORDED))).verdict == cache_pb2.VERDICT_SEMANTIC
    await process.stop()

    process, cache = await start_cache(database=folder / "cache.db", encryption_key=wrong)
    assert (await cache.Lookup(lookup(CAPITAL))).verdict == cache_pb2.VERDICT_MISS
    log = process.log.read_text()
    assert "1 of 1 entries in the database cannot be read with this encryption_key, and are left there" in log
    assert wrong not in log
    await process.stop()

    _, cache = await start_cache(database=folder / "cache.db", encryption_key=f"{wrong},{right}")
    assert (await cache.Lookup(lookup(CAPITAL))).answer.text == "It is Paris, and a secret."


async def test_a_key_that_is_none_ends_the_start_and_is_not_printed() -> None:
    ended = await refused_start("cache", encryption_key="hunter2")
    assert ended.code == 2
    assert "encryption_key" in ended.err
    assert "32 bytes in base64" in ended.err
    assert "hunter2" not in ended.err
