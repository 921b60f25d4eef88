"""The SDK against a scripted gateway over a real connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import hedgerow
from hedgerow.channel import MAX_MESSAGE_BYTES
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from launcher.processes import free_port
from tests.integration.scripted import Hold, Refusal
from tests.integration.scripted_gateway import (
    TRACE_ID,
    ScriptedGateway,
    accepted,
    answer,
    deltas,
    event,
    final,
    serve_script,
)
from tests.integration.scripted_vision import labels


@pytest.fixture
async def gateway() -> AsyncIterator[ScriptedGateway]:
    async with serve_script() as served:
        yield served


@pytest.fixture
async def client(gateway: ScriptedGateway) -> AsyncIterator[hedgerow.AsyncClient]:
    async with hedgerow.AsyncClient(gateway.target) as connected:
        yield connected


async def test_a_stream_yields_each_event_as_a_typed_value(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    gateway.script = [
        *answer("Pa", "ris.")[:-1],
        event(patch=pb.Patch(stage="vision", text="a tower")),
        event(final=final("Paris.")),
    ]
    events = [item async for item in client.stream("What is the capital of France?")]
    kinds = [type(item).__name__ for item in events]
    assert kinds == ["Accepted", "StageReport", "TextDelta", "TextDelta", "Patch", "Final"]
    assert events[0] == hedgerow.Accepted(
        TRACE_ID,
        300,
        (hedgerow.PlannedStage("cache", 60, False, ()), hedgerow.PlannedStage("llm", 240, True, ("cache",))),
    )
    assert events[1] == hedgerow.StageReport("cache", 60, 2.5, 0.5, "ok", "miss")
    assert events[4] == hedgerow.Patch("vision", "a tower")


async def test_an_answer_carries_the_gateways_account_and_the_clients_own_timings(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    gateway.script = answer("It is ", "Paris. ", "Yes.", degraded=["cache:overrun"])
    got = await client.ask("What is the capital of France?")
    assert got.text == "It is Paris. Yes."
    assert (got.finish_reason, got.model, got.trace_id, got.degraded) == (
        "stop",
        "demo-llm",
        TRACE_ID,
        ("cache:overrun",),
    )
    assert got.cache == hedgerow.CacheReport("miss", 0.25, "")
    assert got.usage == hedgerow.Usage(12, 3, 0, 4, 2)
    assert [stage.name for stage in got.stages] == ["cache", "llm"]
    assert (got.ttft_ms, got.total_ms, got.budget_ms) == (41.5, 83.0, 300)
    measured = got.timings
    assert measured.first_token_ms is not None
    assert measured.first_sentence_ms is not None
    assert 0 < measured.first_token_ms <= measured.first_sentence_ms <= measured.total_ms
    assert measured.per_output_token_ms is not None


async def test_callbacks_see_tokens_sentences_and_the_end_in_order(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    gateway.script = answer("It is ", "Paris. ", "Yes.")
    seen: list[object] = []

    async def on_sentence(text: str) -> None:
        seen.append(("sentence", text))

    got = await client.ask("?", on_token=seen.append, on_sentence=on_sentence, on_complete=seen.append)
    sentences = [("sentence", "It is Paris."), ("sentence", "Yes.")]
    assert seen == ["It is ", "Paris. ", "Yes.", *sentences, got]


async def test_a_conversation_and_its_options_reach_the_gateway(gateway: ScriptedGateway) -> None:
    gateway.script = answer("Yes.")
    async with hedgerow.AsyncClient(gateway.target, api_key="secret") as client:
        await client.ask(
            [
                hedgerow.Message("user", "Hi."),
                hedgerow.Message("assistant", "Hello."),
                hedgerow.Message("user", "Why?"),
            ],
            system="Be brief.",
            tier="quality",
            model="demo-llm",
            budget_ms=300,
            max_tokens=64,
            temperature=0.5,
            top_p=0.75,
            stop=("END",),
            seed=7,
            json_schema={"type": "object"},
            cache="bypass",
        )
    assert gateway.requests == [
        pb.GenerateRequest(
            messages=[
                chat_pb2.Message(role=chat_pb2.ROLE_SYSTEM, content="Be brief."),
                chat_pb2.Message(role=chat_pb2.ROLE_USER, content="Hi."),
                chat_pb2.Message(role=chat_pb2.ROLE_ASSISTANT, content="Hello."),
                chat_pb2.Message(role=chat_pb2.ROLE_USER, content="Why?"),
            ],
            tier=pb.TIER_QUALITY,
            model="demo-llm",
            budget_ms=300,
            sampling=chat_pb2.Sampling(max_tokens=64, temperature=0.5, top_p=0.75, stop=["END"], seed=7),
            response_format=chat_pb2.ResponseFormat(json_schema='{"type": "object"}'),
            cache=pb.CachePolicy(bypass=True),
        )
    ]
    assert gateway.metadata["authorization"] == "Bearer secret"


@pytest.mark.parametrize(("budget_ms", "least", "most"), [(300, 0.5, 2), (None, 50, 61)])
async def test_the_calls_deadline_is_the_budget_and_a_second_of_grace(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient, budget_ms: int | None, least: float, most: float
) -> None:
    gateway.script = answer("Yes.")
    await client.ask("?", budget_ms=budget_ms)
    assert gateway.time_remaining_s is not None
    assert least < gateway.time_remaining_s <= most


async def test_the_clients_default_budget_holds_where_a_request_names_none(gateway: ScriptedGateway) -> None:
    gateway.script = answer("Yes.")
    async with hedgerow.AsyncClient(gateway.target, default_budget_ms=250) as client:
        await client.ask("?")
        await client.ask("?", budget_ms=400)
    assert [request.budget_ms for request in gateway.requests] == [250, 400]


async def test_a_refusal_becomes_a_typed_error_with_its_reason_and_when_to_come_back(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    gateway.script = [Refusal("RESOURCE_EXHAUSTED", "too busy", "SHED", {"limit": "8"}, retry_delay_ms=1500)]
    with pytest.raises(hedgerow.ResourceExhausted, match="too busy") as caught:
        await client.ask("?")
    error = caught.value
    assert (error.code, error.reason, error.metadata) == ("RESOURCE_EXHAUSTED", "SHED", {"limit": "8"})
    assert error.retry_delay_s == 1.5
    assert error.trace_id is None


async def test_an_error_after_admission_knows_its_trace(gateway: ScriptedGateway, client: hedgerow.AsyncClient) -> None:
    gateway.script = [accepted(), Refusal("UNAVAILABLE", "no model answers", "NO_MODEL")]
    with pytest.raises(hedgerow.Unavailable, match="no model answers") as caught:
        await client.ask("?")
    assert caught.value.trace_id == TRACE_ID


async def test_a_stream_that_ends_without_its_final_event_is_an_error(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    gateway.script = [accepted(), *deltas("Pa")]
    stream = client.stream("?")
    with pytest.raises(hedgerow.Internal, match="without a final event"):
        async for _ in stream:
            pass
    assert [item async for item in stream] == []  # and then it is over


async def test_an_error_that_follows_the_final_event_takes_nothing_back(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    gateway.script = [*answer("Yes."), Refusal("INTERNAL", "while cleaning up")]
    assert (await client.ask("?")).text == "Yes."


async def test_events_that_travel_together_come_one_by_one(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    events = [item for message in answer("Pa", "ris.") for item in message.events]
    gateway.script = [pb.GenerateResponse(events=events)]
    seen: list[str] = []
    assert (await client.ask("?", on_token=seen.append)).text == "Paris."
    assert seen == ["Pa", "ris."]


async def test_a_kind_of_event_newer_than_the_sdk_is_passed_over(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    gateway.script = [pb.GenerateResponse(events=[pb.Event()]), *answer("Yes.")]
    assert (await client.ask("?")).text == "Yes."


async def test_pictures_and_a_recording_go_with_the_question_and_what_they_say_comes_back(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient, tmp_path: Path
) -> None:
    picture, recording = tmp_path / "shape.png", tmp_path / "question.wav"
    picture.write_bytes(b"png")
    recording.write_bytes(b"wav")
    seen = pb.Sights(pictures=[labels(("red circle", 0.75), ("blue circle", 0.25)), labels()])
    heard = pb.Transcript(text="Which shape?", confirmed_words=2, final=True)
    told = [event(transcript=heard), event(sights=seen)]
    gateway.script = [accepted(), *told, event(final=final("A circle.", transcript="Which shape?", sights=seen))]
    events = [item async for item in client.stream(images=[picture, b"jpeg"], audio=str(recording), system="Be brief.")]
    pictures = ((hedgerow.Label("red circle", 0.75), hedgerow.Label("blue circle", 0.25)), ())
    assert events[1:3] == [hedgerow.Transcript("Which shape?", 2, True), hedgerow.Sights(pictures)]
    assert isinstance(events[3], hedgerow.Final)
    assert (events[3].answer.transcript, events[3].answer.sights) == ("Which shape?", pictures)
    [request] = gateway.requests
    assert [image.data for image in request.images] == [b"png", b"jpeg"]
    assert request.audio.data == b"wav"
    assert [message.content for message in request.messages] == ["Be brief."]


async def test_a_batch_may_share_a_picture_and_an_item_bring_its_own_recording(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    gateway.script = [pb.GenerateBatchResponse(index=index, final=final()) for index in (0, 1)]
    items: list[str | hedgerow.Request] = ["Which shape?", {"audio": b"wav", "images": ()}]
    assert len([result async for result in client.batch(items, images=b"png")]) == 2
    first, second = gateway.requests[0].requests
    assert ([image.data for image in first.images], first.audio.data, len(first.messages)) == ([b"png"], b"", 1)
    assert ([image.data for image in second.images], second.audio.data, len(second.messages)) == ([], b"wav", 0)


async def test_a_gateway_that_is_not_there_is_named() -> None:
    target = f"127.0.0.1:{free_port()}"
    async with hedgerow.AsyncClient(target) as client:
        with pytest.raises(hedgerow.Unavailable, match=f"no gateway at {target}$") as caught:
            await client.ask("?")
        assert caught.value.reason == "NO_GATEWAY"
        with pytest.raises(hedgerow.Unavailable, match=f"no gateway at {target}$"):
            await client.prewarm(timeout_s=0.2)


async def test_a_gateway_that_never_ends_is_caught_by_the_calls_deadline(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    gateway.script = [accepted(), Hold()]
    with pytest.raises(hedgerow.DeadlineExceeded, match=r"had not finished after 1\.001 s") as caught:
        await client.ask("?", budget_ms=1)
    assert (caught.value.reason, caught.value.trace_id) == ("CLIENT_DEADLINE", TRACE_ID)


async def test_prewarming_connects_before_the_first_request(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    gateway.script = answer("Yes.")
    await client.prewarm()
    assert (await client.ask("?")).text == "Yes."


async def test_a_request_that_no_gateway_would_take_is_refused_before_it_is_sent(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    with pytest.raises(
        hedgerow.InvalidArgument,
        match=rf"request: at most {MAX_MESSAGE_BYTES} bytes, got 100000\d\d; send shorter messages",
    ) as caught:
        client.stream("x" * 10_000_000)
    assert caught.value.metadata["field"] == "request"
    assert gateway.requests == []


async def test_leaving_a_stream_cancels_the_call(gateway: ScriptedGateway, client: hedgerow.AsyncClient) -> None:
    gateway.script = [accepted(), *deltas("Pa"), Hold()]
    async for item in client.stream("?"):
        if isinstance(item, hedgerow.TextDelta):
            break
    await asyncio.wait_for(gateway.cancelled.wait(), 5)


async def test_cancelling_the_waiting_task_cancels_the_call(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    gateway.script = [accepted(), Hold()]
    begun = asyncio.Event()

    async def wait() -> None:
        async for _ in client.stream("?"):
            begun.set()

    task = asyncio.create_task(wait())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(gateway.cancelled.wait(), 5)


async def test_a_callback_that_raises_cancels_the_call(gateway: ScriptedGateway, client: hedgerow.AsyncClient) -> None:
    gateway.script = [accepted(), *deltas("Pa"), Hold()]

    def refuse(_: str) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await client.ask("?", on_token=refuse)
    await asyncio.wait_for(gateway.cancelled.wait(), 5)


async def test_a_batch_yields_answers_and_errors_by_position(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    gateway.script = [
        pb.GenerateBatchResponse(
            index=1, error=pb.BatchError(code="NOT_FOUND", reason="MODEL_UNKNOWN", message="no such model")
        ),
        pb.GenerateBatchResponse(index=0, final=final("Paris.")),
    ]
    results = dict(
        [pair async for pair in client.batch(["?", {"messages": "Why?", "model": "none", "budget_ms": 9}], seed=1)]
    )
    first, second = results[0], results[1]
    assert isinstance(first, hedgerow.Answer)
    assert first.text == "Paris."
    assert isinstance(second, hedgerow.NotFound)
    assert (second.reason, second.message) == ("MODEL_UNKNOWN", "no such model")
    items = gateway.requests[0].requests
    assert [(item.model, item.budget_ms, item.sampling.seed) for item in items] == [("", 0, 1), ("none", 9, 1)]


async def test_a_batch_that_ends_early_says_which_results_are_missing(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    gateway.script = [pb.GenerateBatchResponse(index=1, final=final())]
    with pytest.raises(hedgerow.Internal, match=r"without results for \[0, 2\]"):
        async for _ in client.batch(["a", "b", "c"]):
            pass


async def test_the_sync_client_answers_like_the_other(gateway: ScriptedGateway) -> None:
    gateway.script = answer("It is ", "Paris. ", "Yes.")
    seen: list[object] = []

    def ask() -> hedgerow.Answer:
        with hedgerow.Client(gateway.target) as client:
            client.prewarm()
            return client.ask("?", on_token=seen.append, on_sentence=seen.append, on_complete=seen.append)

    got = await asyncio.to_thread(ask)
    assert got.text == "It is Paris. Yes."
    assert [part for part in seen if isinstance(part, str) and part.startswith("It")] == ["It is ", "It is Paris."]
    assert seen[-1] is got


async def test_the_sync_client_raises_the_same_errors(gateway: ScriptedGateway) -> None:
    gateway.script = [accepted(), Refusal("RESOURCE_EXHAUSTED", "too busy", "SHED", retry_delay_ms=250)]

    def ask() -> None:
        with hedgerow.Client(gateway.target) as client:
            client.ask("?")

    with pytest.raises(hedgerow.ResourceExhausted, match="too busy") as caught:
        await asyncio.to_thread(ask)
    assert (caught.value.reason, caught.value.retry_delay_s, caught.value.trace_id) == ("SHED", 0.25, TRACE_ID)


async def test_leaving_a_sync_stream_cancels_the_call(gateway: ScriptedGateway) -> None:
    gateway.script = [accepted(), Hold()]

    def leave() -> None:
        with hedgerow.Client(gateway.target) as client:
            for _ in client.stream("?"):
                break

    await asyncio.to_thread(leave)
    await asyncio.wait_for(gateway.cancelled.wait(), 5)


async def test_the_sync_client_batches(gateway: ScriptedGateway) -> None:
    gateway.script = [pb.GenerateBatchResponse(index=0, final=final("Paris."))]

    def ask() -> list[tuple[int, object]]:
        with hedgerow.Client(gateway.target) as client:
            return list(client.batch(["?"]))

    [(index, got)] = await asyncio.to_thread(ask)
    assert index == 0
    assert isinstance(got, hedgerow.Answer)
