"""Attackers on the network of Redis: without the password, and with it but without the cache's key."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.cache.redis_scripts import ENTRY
from tests.fault.asking import Outcome, asking
from tests.fault.faulty_llm import HEALTHY, FaultyLlm, faulty_llm
from tests.fault.mesh import PATIENT_LOOKUPS, UNLIMITED, Processes, stats
from tests.fault.report import Report
from tests.fault.shipped_redis import ShippedRedis, make_secrets, shipped_redis
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]
_ASKED, _OTHER = "What is the password of the vault?", "What is the name of the dog?"
_TRUE, _FORGED = "swordfish ", "poison "
_WITHIN_S, _PATIENT_MS = 20, 5_000
_REFUSED = {
    **dict.fromkeys(("PING", "GET x", "SET x y", "KEYS *", "FLUSHALL", "CONFIG GET *", "SUBSCRIBE x"), b"-NOAUTH "),
    "AUTH wrong": b"-WRONGPASS ",
    "DBSIZE": b"-NOAUTH ",
}


@pytest_asyncio.fixture(loop_scope="session")
async def redis(tmp_path: Path) -> AsyncIterator[ShippedRedis]:
    async with shipped_redis(tmp_path) as running:
        yield running


async def _answer(starter: Processes, llm: FaultyLlm, text: str, **cache: object) -> Outcome:
    """The answer of a gateway with a cache of its own, both just started, once the cache has stored it."""
    own = await starter.start("cache", redis_timeout_ms=_PATIENT_MS, **cache)
    gateway = await starter.gateway(llm.address, cache_address=own.spec.address, stages=PATIENT_LOOKUPS, **UNLIMITED)
    before = (await stats(own.spec.address)).entries
    async with asking(gateway.spec.address) as caller:
        outcome = await caller.ask(text)
        assert outcome.ok, outcome
        if _verdict(outcome) == pb.CACHE_VERDICT_MISS:
            await until(lambda: stats(own.spec.address), _WITHIN_S, holds=lambda value: value.entries > before)
    return outcome


def _verdict(outcome: Outcome) -> int:
    assert outcome.final
    return outcome.final.cache.verdict


async def test_without_the_password_nothing_is_read_or_written(redis: ShippedRedis, report: Report) -> None:
    with report.case(52, "Redis, without the password or without TLS") as row:
        reader, writer = await asyncio.open_connection("127.0.0.1", redis.port)
        with closing(writer):
            writer.write(b"PING\r\n")
            said = b""
            with suppress(ConnectionResetError):
                said = await asyncio.wait_for(reader.read(), _WITHIN_S)  # it hangs up
            assert b"PONG" not in said
            row.tally(failed=1)
        trusting = ssl.create_default_context(cafile=redis.certificates / "ca.crt")
        reader, writer = await asyncio.open_connection("127.0.0.1", redis.port, ssl=trusting)
        with closing(writer):
            for command, refusal in _REFUSED.items():
                writer.write(f"{command}\r\n".encode())
                assert (await asyncio.wait_for(reader.readline(), _WITHIN_S)).startswith(refusal), command
                row.tally(failed=1)
        async with redis.client() as client:
            assert await client.ping()
            assert not await client.keys()


async def test_a_service_sends_no_secret_to_another_redis(
    redis: ShippedRedis, starter: Processes, llm: FaultyLlm, tmp_path: Path, report: Report
) -> None:
    heard: list[bytes] = []
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    impostor = make_secrets(tmp_path / "others", 1) / "redis"  # of another CA
    context.load_cert_chain(impostor / "tls.crt", impostor / "tls.key")

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(OSError):
            heard.append(await reader.read(1))

    async with AsyncExitStack() as stack:
        server = await asyncio.start_server(hear, "127.0.0.1", 0, ssl=context)
        stack.callback(server.close)
        url = redis.url.replace(f":{redis.port}/", f":{server.sockets[0].getsockname()[1]}/")
        with report.case(52, "another Redis in the place of ours") as row:
            patient = {"redis_url": url, "redis_timeout_ms": _PATIENT_MS}
            for process in (await starter.start("cache", **patient), await starter.gateway(llm.address, **patient)):
                await until(process.log.read_text, _WITHIN_S, holds=lambda log: "certificate verify failed" in log)
                row.tally(failed=1)
            assert not any(heard), "the client sent the password to a server without a trusted certificate"


async def test_with_the_password_but_without_the_key_nothing_is_readable_and_nothing_forged_is_served(
    redis: ShippedRedis, starter: Processes, llm: FaultyLlm, report: Report
) -> None:
    llm.behaviour = replace(HEALTHY, text=_TRUE)
    ours = {"config": redis.config("cache")}
    async with faulty_llm() as thief:
        thief.behaviour = replace(HEALTHY, text=_FORGED)
        with report.case(52, "Redis with its password, without the cache's key") as row:
            first, again = [await _answer(starter, llm, _ASKED, **ours) for _ in range(2)]
            row.count(first, again)
            assert [_verdict(first), _verdict(again)] == [pb.CACHE_VERDICT_MISS, pb.CACHE_VERDICT_EXACT]
            held = await asyncio.to_thread(redis.written)
            assert b"partition" in held  # the entries were written
            for secret in (_ASKED, _TRUE, "vault", "swordfish"):
                assert secret.encode() not in held
            # Forged: what a gateway and a cache without a key, and with another one, store for the same question.
            for theirs in ({}, {"encryption_key": b64encode(b"t" * 32).decode()}):
                forged = await _answer(starter, thief, _OTHER, redis_url=redis.url, **theirs)
                assert (forged.text[: len(_FORGED)], _verdict(forged)) == (_FORGED, pb.CACHE_VERDICT_MISS)
                asked = await _answer(starter, llm, _OTHER, **ours)
                row.count(asked)
                assert (asked.text[: len(_TRUE)], _verdict(asked)) == (_TRUE, pb.CACHE_VERDICT_MISS)
            # Moved: our own answer to one question in the place of that to the other.
            async with redis.client() as client:
                names = [name async for name in client.scan_iter(f"{ENTRY}*")]
                answers = [await client.hget(name, "answer") for name in names]
                assert len(names) == 2, names
                for name, other in zip(names, reversed(answers), strict=True):
                    await client.hset(name, "answer", other)
            moved = await _answer(starter, llm, _ASKED, **ours)
            row.count(moved)
            assert _verdict(moved) == pb.CACHE_VERDICT_MISS
