"""The SDK's questions and answers, with a scripted gateway over a real connection."""

from __future__ import annotations

from pathlib import Path

import pytest

import hedgerow
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from tests.integration.scripted_gateway import (
    TRACE_ID,
    ScriptedGateway,
    accepted,
    answer,
    event,
    final,
)
from tests.integration.scripted_vision import labels


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


async def test_a_conversation_its_options_and_the_key_reach_the_gateway(gateway: ScriptedGateway) -> None:
    """Each option alone: tests/contract/test_request_options.py."""
    gateway.script = answer("Yes.")
    turns = [hedgerow.Message("user", "Hi."), hedgerow.Message("assistant", "Hello."), hedgerow.Message("user", "Why?")]
    async with hedgerow.AsyncClient(gateway.target, api_key="secret") as client:
        await client.ask(turns, system="Be brief.", model="demo-llm", temperature=0.5, json_schema={"type": "object"})
    (request,) = gateway.requests
    said = [(message.role, message.content) for message in request.messages]
    assert said == [(1, "Be brief."), (2, "Hi."), (3, "Hello."), (2, "Why?")]
    assert (request.model, request.sampling) == ("demo-llm", chat_pb2.Sampling(temperature=0.5))
    assert request.response_format == chat_pb2.ResponseFormat(json_schema='{"type": "object"}')
    assert gateway.metadata["authorization"] == "Bearer secret"


@pytest.mark.parametrize(("budget_ms", "least", "most"), [(10_000, 5, 11.2), (None, 3_000, 3_600.2)])
async def test_the_calls_deadline_is_the_budget_and_a_second_of_grace(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient, budget_ms: int | None, least: float, most: float
) -> None:
    gateway.script = answer("Yes.")
    await client.ask("?", budget_ms=budget_ms)
    assert gateway.time_remaining_s is not None
    assert least < gateway.time_remaining_s <= most  # gRPC rounds timeouts, to a tenth of a second


async def test_the_clients_default_budget_holds_where_a_request_names_none(gateway: ScriptedGateway) -> None:
    gateway.script = answer("Yes.")
    async with hedgerow.AsyncClient(gateway.target, default_budget_ms=25_000) as client:
        await client.ask("?")
        await client.ask("?", budget_ms=40_000)
    assert [request.budget_ms for request in gateway.requests] == [25_000, 40_000]


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


async def test_pictures_and_a_recording_are_sent_and_labels_and_transcript_come_back(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient, tmp_path: Path
) -> None:
    picture, recording = tmp_path / "shape.png", tmp_path / "question.wav"
    picture.write_bytes(b"png")
    recording.write_bytes(b"wav")
    seen = pb.Sights(pictures=[labels(("red circle", 0.75), ("blue circle", 0.25)), labels()])
    heard = pb.Transcript(text="Which shape?", confirmed_words=2, final=True)
    notices = [event(transcript=heard), event(sights=seen)]
    gateway.script = [accepted(), *notices, event(final=final("A circle.", transcript="Which shape?", sights=seen))]
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


async def test_prewarming_connects_before_the_first_request(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    gateway.script = answer("Yes.")
    await client.prewarm()
    assert (await client.ask("?")).text == "Yes."


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
