"""The life of a client's connection, with a scripted gateway."""

from __future__ import annotations

import asyncio
import gc

import pytest

import hedgerow
from hedgerow._answer_stream_aio import AsyncAnswerStream
from hedgerow._outgoing import Outgoing
from hedgerow._peer import Peer
from hedgerow.gateway.v1.gateway_pb2 import GenerateRequest
from tests.fault.proxy import FaultProxy
from tests.integration.scripted import Hold
from tests.integration.scripted_gateway import ScriptedGateway, accepted, answer, deltas


async def test_a_client_that_was_closed_connects_again(gateway: ScriptedGateway) -> None:
    gateway.script = answer("Paris", ".")

    def ask_twice() -> list[str]:
        client, texts = hedgerow.Client(gateway.target), list[str]()
        for _ in range(2):
            with client:
                texts.append(client.ask("?").text)
        return texts

    assert await asyncio.to_thread(ask_twice) == ["Paris.", "Paris."]
    client, texts = hedgerow.AsyncClient(gateway.target), list[str]()
    for _ in range(2):
        async with client:
            texts.append((await client.ask("?")).text)
    assert texts == ["Paris.", "Paris."]


async def test_a_client_outlives_the_event_loop_that_it_was_used_in(gateway: ScriptedGateway) -> None:
    gateway.script = answer("Paris", ".")
    client = hedgerow.AsyncClient(gateway.target)

    async def ask() -> str:
        return (await client.ask("?")).text

    async def ask_and_close() -> str:
        async with client:
            return await ask()

    assert await asyncio.to_thread(lambda: [asyncio.run(ask()), asyncio.run(ask_and_close())]) == ["Paris.", "Paris."]


async def test_a_client_that_is_closed_before_the_next_gateway_is_asked_cancels_the_answer(
    gateway: ScriptedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.script = [accepted(), *deltas("Pa"), Hold()]
    async with FaultProxy(gateway.target) as proxy:
        client = hedgerow.AsyncClient(proxy.address)
        monkeypatch.setattr("hedgerow._answer_stream_aio.pause", lambda _: client.close())
        stream = client.stream("?", budget_ms=20_000)
        await anext(stream)
        await anext(stream)
        proxy.cut()
        with pytest.raises(hedgerow.Cancelled) as caught:
            await anext(stream)
        assert caught.value.partial
        assert caught.value.partial.text == "Pa"


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
async def test_a_stream_that_cannot_begin_raises_once() -> None:
    def begin(out: Outgoing[GenerateRequest]) -> object:
        raise RuntimeError("no call")

    with pytest.raises(RuntimeError, match="no call"):
        AsyncAnswerStream(begin, Outgoing(GenerateRequest(), 1.0, ()), Peer("127.0.0.1:1"))
    gc.collect()
