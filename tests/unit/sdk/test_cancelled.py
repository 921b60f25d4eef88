"""Cancelling a call of the SDK, at any await, ends the call and its sending task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import grpc
import pytest

from hedgerow import AsyncClient, Cancelled
from hedgerow.gateway.v1 import gateway_pb2 as pb
from tests.cancelling import Work, cancelled_at_every_await
from tests.unit.sdk.scripted_call import ScriptedCall

LOST = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), "Socket closed")


def said(text: str) -> pb.GenerateResponse:
    return pb.GenerateResponse(events=[pb.Event(delta=pb.TextDelta(text=text, tokens=1))])


FINAL = pb.GenerateResponse(events=[pb.Event(final=pb.Final(text="Paris."))])


class ScriptedStub:
    """Each call plays the next script."""

    def __init__(self, *scripts: list[Any]):
        self._scripts, self.calls = list(scripts), list[ScriptedCall]()

    def _begin(self, *request: Any, **how: Any) -> ScriptedCall:
        self.calls.append(ScriptedCall(*self._scripts[len(self.calls)]))
        return self.calls[-1]

    Generate = GenerateBatch = Converse = _begin


async def sounds() -> AsyncGenerator[bytes, None]:
    for _ in range(3):
        await asyncio.sleep(0.01)
        yield bytes(3_200)


async def ask(client: AsyncClient) -> None:
    await client.ask("Who?", on_token=lambda text: asyncio.sleep(0.001))


async def batch(client: AsyncClient) -> None:
    async with aclosing(client.batch(["Who?", "Where?"])) as results:
        async for _ in results:
            pass


async def converse(client: AsyncClient) -> None:
    async with client.converse(sounds()) as conversation:
        async for _ in conversation:
            pass


@pytest.mark.parametrize(
    ("work", "scripts"),
    [
        pytest.param(ask, [[said("Pa"), said("ris."), FINAL]], id="ask"),
        pytest.param(ask, [[said("Pa"), LOST], [LOST], [said("ris."), FINAL]], id="resumed"),
        pytest.param(
            batch,
            [[pb.GenerateBatchResponse(index=index, final=FINAL.events[0].final) for index in (0, 1)]],
            id="batch",
        ),
        pytest.param(converse, [[pb.ConverseResponse() for _ in range(5)]], id="converse"),
    ],
)
@cancelled_at_every_await(awaits=2)
async def test_a_cancelled_call_of_the_client_leaves_nothing_behind(work: Any, scripts: list[list[Any]]) -> Work:
    client, stub = AsyncClient("127.0.0.1:1"), ScriptedStub(*scripts)
    client._make_stub = lambda _: stub
    yield work(client)
    assert all(call.over for call in stub.calls)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_stream_whose_reader_was_cancelled_is_no_bug_of_the_gateway() -> None:
    client, stub = AsyncClient("127.0.0.1:1"), ScriptedStub([said("Pa"), FINAL])
    client._make_stub = lambda _: stub
    stream = client.stream("Who?")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(stream), 0.001)
    with pytest.raises(Cancelled):
        await anext(stream)
