"""Answers that outlast a client's connection."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from opentelemetry.trace import Span

from hedgerow.channel import MAX_MESSAGE_BYTES
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.quota import REQUEST, Allowance, Claim, QuotaExceeded, Quotas, Reservation
from services.gateway.answer.event_writer import Send
from services.gateway.api import idempotency
from services.gateway.api.idempotency import IdempotencyStore, SendChoice
from services.gateway.errors import AnswerNotKept
from services.gateway.settings.serving import KeptSettings
from services.runtime.errors import Exhausted, InvalidInput
from tests.unit.gateway.reading import sent_by
from tests.unit.gateway.scripted import large_asides

pytestmark = pytest.mark.paused


class Scene:
    """Answers of `words`, one each second."""

    def __init__(self, *words: str | Exception, **settings: int):
        self.words = words
        self.answers = IdempotencyStore(KeptSettings(**settings))
        self.begun = self.over = self.left = 0
        self.quotas, self.allowance = Quotas(), Allowance()

    async def _begin(self, span: Span, send: Send) -> None:
        self.begun += 1
        await self._give(send)

    async def _admit(self, claim: Claim) -> Reservation:
        return self.quotas.reserve("a", self.allowance, 0, claim)

    async def _give(self, send: Send) -> None:
        try:
            for word in self.words:
                await asyncio.sleep(1)
                if isinstance(word, Exception):
                    raise word
                await send(pb.GenerateResponse(events=[pb.Event(delta=pb.TextDelta(text=word))]))
            self.over += 1
        finally:
            self.left += 1

    async def ask(
        self, tenant: str = "a", most: int = 99, within_s: float = 60, key: str = "k", **fields: Any
    ) -> list[str]:
        """The events of one client, which cancels after `most` of them."""
        request = pb.GenerateRequest(idempotency_key=key, **fields)
        messages = sent_by(partial(self.answers.follow, request, tenant, self._begin, self._admit, within_s))
        read: list[str] = []
        try:
            async for message in messages:
                read += [event.delta.text for event in message.events]
                if len(read) >= most:
                    break
        finally:
            await messages.aclose()
        return read


async def test_a_client_that_returns_reads_on_and_the_answer_is_generated_once():
    scene = Scene("a", "b", "c", "d")
    assert await scene.ask(most=2) == ["a", "b"]
    await asyncio.sleep(10)
    assert await scene.ask(events_seen=2, attempt=1, budget_ms=5) == ["c", "d"]
    assert (scene.begun, scene.over) == (1, 1)


async def test_two_requests_with_one_key_at_a_time_get_one_answer():
    scene = Scene("a", "b")
    first, second = await asyncio.gather(scene.ask(), scene.ask())
    assert first == second == ["a", "b"]
    assert scene.begun == 1
    assert await scene.ask() == ["a", "b"]
    assert scene.begun == 1


async def test_a_long_answer_that_is_kept_comes_in_messages_that_grpc_takes():
    scene = Scene(*["x" * 200_000] * 30)
    first, request = await scene.ask(), pb.GenerateRequest(idempotency_key="k")
    again = sent_by(partial(scene.answers.follow, request, "a", scene._begin, scene._admit, 60))
    messages = [message async for message in again]
    assert [event.delta.text for message in messages for event in message.events] == first
    assert max(message.ByteSize() for message in messages) < MAX_MESSAGE_BYTES


async def test_several_answers_that_are_kept_come_in_few_messages():
    scene, request = Scene(), pb.GenerateRequest(idempotency_key="k")
    words = [f"{number} " for number in range(200)]
    read: dict[int | None, list[str]] = {0: [], 1: []}
    came = list[int | None]()

    async def begin(span: Span, send: SendChoice) -> None:
        for index, word in enumerate(words):
            await send(pb.GenerateResponse(events=[pb.Event(delta=pb.TextDelta(text=word))]), index % 2)

    async def take(message: pb.GenerateResponse, choice: int | None = None, /) -> None:
        came.append(choice)
        read[choice] += [event.delta.text for event in message.events]

    await scene.answers.follow(request, "a", begin, scene._admit, 60, take, choices=2)
    assert came == [0, 1]
    assert read == {0: words[::2], 1: words[1::2]}


async def test_a_large_request_is_compared_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch):
    large, scene = large_asides(monkeypatch, idempotency), Scene("a")
    for key, length in (("short", 1_000), ("long", 2_000_000)):
        assert await scene.ask(key=key, messages=[chat_pb2.Message(content="x" * length)]) == ["a"]
    assert large == [False, True]


async def test_each_client_of_an_answer_counts_for_its_tenants_concurrency():
    scene = Scene("a", "b")
    scene.allowance = Allowance(concurrency=2)
    asked = await asyncio.gather(*(scene.ask() for _ in range(5)), return_exceptions=True)
    assert [type(each) for each in asked] == [list, list, list, QuotaExceeded, QuotaExceeded]
    assert scene.begun == 1
    assert await scene.ask() == ["a", "b"]  # no place is lost


async def test_a_returning_client_counts_as_the_answer_that_is_generated_for_it():
    scene = Scene("a", "b", "c")
    scene.allowance = Allowance(concurrency=1, requests_per_s=0.01, requests_burst=2)
    assert await scene.ask(most=1) == ["a"]
    of_the_answer = scene.quotas.reserve("a", scene.allowance, 0, REQUEST)
    assert await scene.ask(events_seen=1) == ["b", "c"]
    of_the_answer.settle(0)
    with pytest.raises(QuotaExceeded, match="requests a second"):
        await scene.ask(events_seen=1)


async def test_an_answer_is_unread_while_it_is_made_and_its_client_is_away():
    scene = Scene("a", "b", "c")
    assert not scene.answers.unread("a")
    assert await scene.ask(most=1) == ["a"]
    assert scene.answers.unread("a")
    assert not scene.answers.unread("b")
    back = asyncio.create_task(scene.ask(most=1, events_seen=1))
    await asyncio.sleep(0.5)
    assert not scene.answers.unread("a")
    assert await back == ["b"]
    assert scene.answers.unread("a")
    await asyncio.sleep(2)
    assert not scene.answers.unread("a")  # it is whole
    assert await scene.ask(key="other", most=1) == ["a"]
    scene.answers.drain()
    assert not scene.answers.unread("a")


async def test_an_answer_without_a_client_is_given_up():
    scene = Scene(*"abcdefgh", ms=3_000)
    await scene.ask(most=1)
    await asyncio.sleep(2.9)
    assert (scene.left, len(scene.answers)) == (0, 1)
    await asyncio.sleep(0.2)
    assert (scene.left, scene.over, len(scene.answers)) == (1, 0, 0)
    with pytest.raises(AnswerNotKept):
        await scene.ask(events_seen=1)


async def test_a_whole_answer_is_kept_as_long_and_then_generated_again():
    scene = Scene("a", ms=3_000)
    await scene.ask()
    await asyncio.sleep(2.9)
    await scene.ask()  # keeps it for as long again
    await asyncio.sleep(2.9)
    assert scene.begun == 1
    await asyncio.sleep(0.2)
    await scene.ask()
    assert scene.begun == 2


async def test_a_failed_answer_is_not_kept():
    scene = Scene("a", Exhausted("busy"))
    for _ in range(2):
        with pytest.raises(Exhausted):
            await scene.ask()
    assert (scene.begun, len(scene.answers)) == (2, 0)


async def test_another_request_may_not_have_the_same_key_and_another_tenants_is_another():
    scene = Scene("a", "b")
    await scene.ask(most=1)
    with pytest.raises(InvalidInput, match="idempotency_key: a different key for each request"):
        await scene.ask(messages=[chat_pb2.Message(content="Hi")])
    with pytest.raises(AnswerNotKept):
        await scene.ask("b", events_seen=1)
    assert await scene.ask("b", messages=[chat_pb2.Message(content="Hi")]) == ["a", "b"]


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({"key": ""}, "1 to 128 characters"),
        ({"key": "k" * 129}, "1 to 128 characters"),
        ({"events_seen": -1}, "0 to 1"),
        ({"events_seen": 3}, "0 to 1"),
    ],
)
async def test_an_invalid_key_or_position_is_refused(fields: dict[str, Any], limit: str):
    scene = Scene("a", "b")
    await scene.ask(most=1)
    with pytest.raises(InvalidInput, match=limit):
        await scene.ask(**fields)
    await asyncio.sleep(2)  # until the answer is over


async def test_a_draining_gateway_gives_up_answers_without_a_client():
    scene = Scene("a", "b", "c")
    await scene.ask(key="left", most=1)
    reading = asyncio.create_task(scene.ask(key="read"))
    await asyncio.sleep(1.5)
    scene.answers.drain()
    assert await reading == ["a", "b", "c"]
    assert (scene.begun, scene.over, scene.left) == (2, 1, 2)


async def test_an_answer_whose_client_leaves_a_draining_gateway_is_given_up_at_once():
    scene = Scene("a", "b", "c")
    reading = asyncio.create_task(scene.ask(most=1))
    await asyncio.sleep(0.5)
    scene.answers.drain()
    assert await reading == ["a"]
    await asyncio.sleep(0.1)
    assert (scene.left, scene.over, len(scene.answers)) == (1, 0, 0)
