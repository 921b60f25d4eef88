"""The blocking client does what the other does, with a scripted gateway over a real connection."""

from __future__ import annotations

import asyncio

import hedgerow
from tests.integration.scripted import Hold
from tests.integration.scripted_gateway import ScriptedGateway, accepted, answer
from tests.integration.sdk.blocking import blocking


async def test_the_sync_client_answers_like_the_other(gateway: ScriptedGateway) -> None:
    gateway.script = answer("It is ", "Paris. ", "Yes.")
    seen: list[object] = []

    def ask(client: hedgerow.Client) -> hedgerow.Answer:
        client.prewarm()
        return client.ask("?", on_token=seen.append, on_sentence=seen.append, on_complete=seen.append)

    got = await blocking(hedgerow.Client(gateway.target), ask)
    assert got.text == "It is Paris. Yes."
    assert [part for part in seen if isinstance(part, str) and part.startswith("It")] == ["It is ", "It is Paris."]
    assert seen[-1] is got


async def test_leaving_a_sync_stream_cancels_the_call(gateway: ScriptedGateway) -> None:
    gateway.script = [accepted(), Hold()]
    await blocking(hedgerow.Client(gateway.target), lambda client: next(iter(client.stream("?"))))
    await asyncio.wait_for(gateway.cancelled.wait(), 20)
