"""Streams beyond their events, with a scripted gateway over a real connection."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import hedgerow
from hedgerow.gateway.v1 import gateway_pb2 as pb
from tests.fault.proxy import FaultProxy
from tests.integration.scripted import Hold, Refusal
from tests.integration.scripted_gateway import (
    TRACE_ID,
    ScriptedGateway,
    accepted,
    answer,
    deltas,
    event,
    final,
    stage,
)
from tests.integration.sdk.blocking import blocking
from tests.waiting import until


async def test_sentences_come_as_they_are_complete(gateway: ScriptedGateway, client: hedgerow.AsyncClient) -> None:
    hold = Hold()
    gateway.script = [accepted(), *deltas("It is ", "Paris. I"), hold, *deltas("t is big."), event(final=final())]
    async with client.stream("?") as stream:
        sentences = stream.sentences()
        assert await anext(sentences) == "It is Paris."
        assert (stream.partial.text, stream.answer) == ("It is Paris. I", None)
        hold.release.set()
        assert [sentence async for sentence in sentences] == ["It is big."]
    assert stream.answer is not None


async def test_a_text_that_replaces_another_brings_its_own_sentences(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    patch = event(patch=pb.Patch(stage="llm", text="No. Yes", replaces=True))
    gateway.script = [accepted(), *deltas("Perhaps. Ma"), patch, *deltas("."), event(final=final("No. Yes."))]
    async with client.stream("?") as stream:
        assert [sentence async for sentence in stream.sentences()] == ["Perhaps.", "No.", "Yes."]
    assert stream.partial.text == "No. Yes."


class LeavingListener(FaultProxy):
    """Resets its first connection, as a listener that closes does with those in its queue."""

    accepted = 0

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self.accepted == 1:
            writer.transport.abort()
        else:
            super()._accept(reader, writer)


async def test_an_answer_is_asked_for_again_where_a_gateway_hung_up_before_it_had_accepted(
    gateway: ScriptedGateway,
) -> None:
    gateway.script = answer("Paris.")
    async with LeavingListener(gateway.target) as listener, hedgerow.AsyncClient(listener.address) as client:
        assert (await client.ask("?")).text == "Paris."
    assert listener.accepted == 2


async def test_cancelling_a_stream_ends_the_iteration_and_keeps_what_had_come(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    gateway.script = [accepted(), event(stage=stage()), *deltas("Pa", "ris"), Hold()]
    stream, kinds = client.stream("?"), list[str]()
    async for item in stream:
        kinds.append(type(item).__name__)
        if stream.partial.text == "Paris":
            asyncio.get_running_loop().call_soon(stream.cancel)  # from outside, while the next event is waited for
    assert kinds == ["Accepted", "StageReport", "TextDelta", "TextDelta"]
    assert stream.partial == hedgerow.PartialAnswer(
        "Paris", stages=(hedgerow.StageReport("cache", 60, 2.5, 0.5, "ok", "miss"),), trace_id=TRACE_ID
    )
    assert [item async for item in stream] == []
    await asyncio.wait_for(gateway.cancelled.wait(), 20)


async def test_cancelling_a_sync_stream_from_another_thread_ends_the_iteration(gateway: ScriptedGateway) -> None:
    gateway.script = [accepted(), *deltas("Paris. It"), Hold()]

    def read(client: hedgerow.Client) -> tuple[list[str], str]:
        stream, sentences = client.stream("?"), list[str]()
        for sentence in stream.sentences():
            sentences.append(sentence)
            threading.Thread(target=stream.cancel).start()
        return sentences, stream.partial.text

    assert await blocking(hedgerow.Client(gateway.target), read) == (["Paris."], "Paris. It")
    await asyncio.wait_for(gateway.cancelled.wait(), 20)


async def test_an_error_has_what_had_come_by_then(gateway: ScriptedGateway, client: hedgerow.AsyncClient) -> None:
    gateway.script = [*answer("Pa", "ris")[:-1], Refusal("INTERNAL", "broke")]
    with pytest.raises(hedgerow.Internal) as caught:
        await client.ask("?")
    assert caught.value.partial is not None
    assert (caught.value.partial.text, caught.value.trace_id) == ("Paris", TRACE_ID)
    assert [each.name for each in caught.value.partial.stages] == ["cache"]


async def test_closing_the_client_cancels_a_stream_with_its_trace_id(gateway: ScriptedGateway) -> None:
    gateway.script = [accepted(), *deltas("Pa"), Hold()]
    async with hedgerow.AsyncClient(gateway.target) as client:
        stream = client.stream("?")
        await anext(stream)
        await anext(stream)
    with pytest.raises(hedgerow.Cancelled) as caught:
        await anext(stream)
    assert caught.value.trace_id == TRACE_ID
    assert caught.value.partial is not None
    assert caught.value.partial.text == "Pa"


async def test_closing_the_client_cancels_a_batch_and_not_its_reading_task(
    gateway: ScriptedGateway,
) -> None:
    gateway.script = [Hold()]
    async with hedgerow.AsyncClient(gateway.target) as client:
        reading = asyncio.ensure_future(anext(aiter(client.batch(["?"]))))
        await until(lambda: bool(gateway.requests))
    with pytest.raises(hedgerow.Cancelled):
        await reading


def _stream(client: hedgerow.Client) -> object:
    return list(client.stream("?"))


def _batch(client: hedgerow.Client) -> object:
    return list(client.batch(["?"]))


@pytest.mark.parametrize("ask", [_stream, _batch])
async def test_closing_the_client_cancels_a_blocking_call(gateway: ScriptedGateway, ask: Any) -> None:
    gateway.script = [Hold()]
    with hedgerow.Client(gateway.target) as client:
        asking = asyncio.create_task(asyncio.to_thread(ask, client))
        await until(lambda: bool(gateway.requests))
    with pytest.raises(hedgerow.Cancelled):
        await asking
