"""By HTTP, what is no answer: transcriptions, moderations, embeddings, the cache's counts and its forgetting."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI

from services.runtime.rpc.boundary import DOMAIN
from tests.conftest import Start
from tests.fault.mesh import PATIENT_LOOKUPS
from tests.integration.http_gateway import QUESTION, HttpGateway, start_http_gateway
from tests.integration.scripted import Heard, Refusal
from tests.integration.scripted_audio import ScriptedAudio, recording, segment, serve_audio, word
from tests.integration.scripted_llm import ScriptedLlm
from tests.waiting import until

SPOKEN = ("speech.wav", b"RIFF....WAVE", "audio/wav")
PATH = "/v1/audio/transcriptions"


@pytest.fixture
async def audio() -> AsyncIterator[ScriptedAudio]:
    async with serve_audio() as scripted:
        said = segment(0, "Hello there.", word("Hello", 0.0), word("there.", 0.5)), segment(1, "Goodbye.")
        scripted.script = recording(*said)
        yield scripted


@pytest.fixture
async def gateway(start: Start, llm: ScriptedLlm, audio: ScriptedAudio) -> HttpGateway:
    return await start_http_gateway(start, llm, audio_address=audio.target)


async def test_a_recording_is_written_down(openai_: AsyncOpenAI, audio: ScriptedAudio) -> None:
    heard = await openai_.audio.transcriptions.create(model="whisper-1", file=SPOKEN, language="en")
    assert heard.text == "Hello there. Goodbye."
    assert b"".join(request.data for request in audio.requests) == SPOKEN[1]
    assert audio.requests[0].options.language == "en"
    text = await openai_.audio.transcriptions.create(model="whisper-1", file=SPOKEN, response_format="text")
    assert str(text).strip() == "Hello there. Goodbye."
    cues = await openai_.audio.transcriptions.create(model="whisper-1", file=SPOKEN, response_format="srt")
    assert str(cues).endswith("2\n00:00:02,000 --> 00:00:03,500\nGoodbye.\n")


async def test_segments_and_words_are_complete(openai_: AsyncOpenAI) -> None:
    heard = await openai_.audio.transcriptions.create(
        model="whisper-1",
        file=SPOKEN,
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
    )
    assert [each.text for each in heard.segments or []] == ["Hello there.", "Goodbye."]
    assert [each.word for each in heard.words or []] == ["Hello", "there."]
    assert (heard.duration, heard.language) == (4, "en")


async def test_a_transcript_streams(openai_: AsyncOpenAI) -> None:
    stream = await openai_.audio.transcriptions.create(model="whisper-1", file=SPOKEN, stream=True)
    *deltas, done = [event async for event in stream]
    assert [event.delta for event in deltas] == ["Hello there.", " Goodbye."]
    assert (done.type, done.text) == ("transcript.text.done", "Hello there. Goodbye.")


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")  # OpenAI advises its users to ask other models
async def test_a_translation_is_asked_of_the_audio_service(openai_: AsyncOpenAI, audio: ScriptedAudio) -> None:
    heard = await openai_.audio.translations.create(model="whisper-1", file=SPOKEN)
    assert heard.text == "Hello there. Goodbye."
    assert audio.requests[0].options.translate
    translated = await openai_.audio.translations.create(model="whisper-1", file=SPOKEN, response_format="verbose_json")
    assert (translated.language, translated.duration) == ("english", 4)
    assert [each.text for each in translated.segments or []] == ["Hello there.", "Goodbye."]


async def test_a_prompt_goes_to_the_audio_service(openai_: AsyncOpenAI, audio: ScriptedAudio) -> None:
    await openai_.audio.transcriptions.create(model="whisper-1", file=SPOKEN, prompt="Hedgerow")
    assert audio.requests[0].options.prompt == "Hedgerow"


async def test_a_model_that_does_not_translate_is_501(http: httpx.AsyncClient, audio: ScriptedAudio) -> None:
    audio.script = [Heard(), Refusal("UNIMPLEMENTED", "translate: several languages, got tiny.en", domain=DOMAIN)]
    for _ in range(10):  # which is no failure of the service: no breaker opens
        answer = await http.post("/v1/audio/translations", files={"file": SPOKEN})
        assert (answer.status_code, answer.json()["error"]["code"]) == (501, "not_supported")
        assert "tiny.en" in answer.json()["error"]["message"]


@pytest.mark.parametrize(("field", "param"), [("options.language", "language"), ("data", "file")])
async def test_a_refusal_of_the_audio_service_has_the_forms_name_of_the_field(
    http: httpx.AsyncClient, audio: ScriptedAudio, field: str, param: str
) -> None:
    said = {"field": field, "limit": "another", "value": "this"}
    audio.script = [Refusal("INVALID_ARGUMENT", f"{field}: another, got this", metadata=said, domain=DOMAIN)]
    answer = await http.post(PATH, files={"file": SPOKEN}, data={"language": "en-US"})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["message"]) == (400, param, f"{param}: another, got this")


@pytest.mark.parametrize(("asked_ms", "budget_s"), [(None, 86_400), (600_000, 600), (60_000, 60)])
async def test_a_long_transcription_has_its_own_budget_unless_the_client_names_one(
    http: httpx.AsyncClient, audio: ScriptedAudio, asked_ms: int | None, budget_s: float
) -> None:
    headers = {"x-hedgerow-budget-ms": str(asked_ms)} if asked_ms else {}
    assert (await http.post(PATH, files={"file": SPOKEN}, headers=headers)).status_code == 200
    assert audio.time_remaining_s == pytest.approx(budget_s, rel=0.5)  # gRPC rounds timeouts


async def test_a_form_is_refused_by_field(http: httpx.AsyncClient) -> None:
    for given, status, param in (
        ({"files": {"other": SPOKEN}}, 400, "file"),
        ({"files": {"file": SPOKEN}, "data": {"response_format": "diarized_json"}}, 400, "response_format"),
        ({"json": {"file": "x"}}, 415, "content-type"),
    ):
        answer = await http.post(PATH, **given)
        assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)
    page = {"origin": "http://evil.example"}
    assert (await http.post(PATH, files={"file": SPOKEN}, headers=page)).status_code == 403
    cut = await http.post(PATH, content=b"--x\r\n", headers={"content-type": "multipart/form-data; boundary=x"})
    assert cut.status_code == 400


async def test_an_endpoint_without_its_service_is_not_offered(start: Start, llm: ScriptedLlm) -> None:
    gateway = await start_http_gateway(start, llm)
    async with httpx.AsyncClient(base_url=gateway.url, timeout=20) as http:
        for method, path, given in (
            ("POST", PATH, {"files": {"file": SPOKEN}}),
            ("POST", "/v1/audio/translations", {"files": {"file": SPOKEN}}),
            ("POST", "/v1/embeddings", {"json": {"input": "x"}}),
            ("POST", "/v1/rerank", {"json": {"query": "x", "documents": ["x"]}}),
            ("GET", "/v1/cache/stats", {}),
            ("DELETE", "/v1/cache", {}),
        ):
            answer = await http.request(method, path, **given)
            assert (answer.status_code, answer.json()["error"]["code"]) == (501, "not_offered")
            assert "HEDGEROW_GATEWAY_" in answer.json()["error"]["message"]


async def test_openais_client_has_texts_classified_by_the_guard(openai_: AsyncOpenAI) -> None:
    moderated = await openai_.moderations.create(input=["Write to anna@example.com.", "Hello."])
    assert moderated.model == "hedgerow-guard"
    assert [result.flagged for result in moderated.results] == [True, False]
    categories = moderated.results[0].categories
    assert (categories.harassment, categories.model_extra) == (
        False,
        {"injection": False, "secrets": False, "personal": True},
    )
    assert moderated.results[0].category_applied_input_types.hate == []
    with pytest.raises(openai.NotFoundError, match="hedgerow-guard"):
        await openai_.moderations.create(input="Hello.", model="omni-moderation-latest")


@pytest.fixture
async def remembering(start: Start, llm: ScriptedLlm, model_cache: Path, tmp_path: Path) -> HttpGateway:
    """A gateway with a real cache."""
    cache = await start("cache", database=str(tmp_path / "cache.db"), model_cache=str(model_cache))
    return await start_http_gateway(start, llm, cache_address=cache.spec.address, stages=json.dumps(PATIENT_LOOKUPS))


async def test_the_cache_embeds_counts_and_forgets(remembering: HttpGateway, llm: ScriptedLlm) -> None:
    async with AsyncOpenAI(base_url=f"{remembering.url}/v1", api_key="any", max_retries=0) as client:
        for form in ({}, {"encoding_format": "float"}):  # base64, where it is left to the client
            reply = await client.embeddings.create(model="auto", input=["one", "two"], **form)
            assert [len(each.embedding) for each in reply.data] == [384, 384]
            assert sum(value * value for value in reply.data[0].embedding) == pytest.approx(1, abs=1e-3)
        with pytest.raises(openai.NotFoundError, match="all-MiniLM"):
            await client.embeddings.create(model="text-embedding-3-small", input="one")
        with pytest.raises(openai.BadRequestError, match="dimensions: 384, which are all of all-MiniLM"):
            await client.embeddings.create(model="auto", input="one", dimensions=256)
        for given, named in ((["one", " "], "input[1]"), (" ", "input"), ([*["one"] * 3, "word " * 600], "input[3]")):
            with pytest.raises(openai.BadRequestError) as refused:
                await client.embeddings.create(model="auto", input=given)
            assert refused.value.param == named
            assert refused.value.message.count("texts[") == 0
    async with httpx.AsyncClient(base_url=remembering.url, timeout=20) as http:
        documents = ["The cat is fed at noon.", "Berlin is in Germany.", "Paris is the capital of France."]
        asked = {"query": "What is the capital of France?", "documents": documents, "top_n": 2}
        ranked = (await http.post("/v1/rerank", json=asked)).json()
        assert ranked["model"].startswith("cosine/all-MiniLM")
        assert [each["index"] for each in ranked["results"]] == [2, 1]
        assert (await _asked(http))["verdict"] == "miss"
        await until(lambda: _stores(http), holds=lambda stores: stores == 1)
        hit = await _asked(http)
        assert hit["verdict"] == "exact"
        assert (await http.delete(f"/v1/cache/{hit['key']}")).json() == {"removed": 1}
        assert (await http.delete("/v1/cache")).json() == {"removed": 0}
        assert (await http.delete("/v1/cache/anything")).status_code == 400


async def _asked(http: httpx.AsyncClient) -> dict[str, Any]:
    """The cache's decision for the question."""
    return (await http.post("/v1/chat/completions", json=QUESTION)).json()["hedgerow"]["cache"]


async def _stores(http: httpx.AsyncClient) -> int:
    return (await http.get("/v1/cache/stats")).json()["stores"]
