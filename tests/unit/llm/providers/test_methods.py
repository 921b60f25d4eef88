"""Embeddings, rerank and moderations of a simulated provider."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from services.llm.engine import METHODS, Chunk, Message, Original, Request
from services.llm.errors import AnswerTooLarge, EngineBusy, EngineDown, RequestRefused
from services.llm.features import check_api
from services.llm.providers import methods
from services.llm.providers.config import OpenAISettings
from services.llm.providers.transport.wire import Broken
from services.llm.translate import to_request
from services.runtime.deadline import Deadline
from services.runtime.errors import InvalidInput, NotSupported, TooLate
from tests.clock import loop_clock
from tests.unit.llm.providers.asking import answer, answer_of
from tests.unit.llm.providers.simulated_provider import KEY, SimulatedProvider

VECTORS = {
    "object": "list",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.25, -1.5e-3]}],
    "model": "text-embedding-3-small",
    "usage": {"prompt_tokens": 5, "total_tokens": 5},
}
JSON = {"content-type": "application/json"}


def saying(answer: object, status: int = 200, **headers: str) -> SimulatedProvider:
    """A provider that answers with JSON, in two pieces."""
    body = answer if isinstance(answer, str) else json.dumps(answer)
    return SimulatedProvider((body[:7], body[7:]), status, {**JSON, **headers})


async def asked(provider: SimulatedProvider, api: str = "embeddings", **body: Any) -> list[Chunk]:
    """The chunks of an answer by a model that serves all methods."""
    request = Request((), original=Original(api, json.dumps({"model": "mine", **body}).encode()))
    return await answer(provider, request, apis=sorted(METHODS))


def relayed(chunks: list[Chunk]) -> str:
    return "".join(piece for chunk in chunks for piece in chunk.relayed)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"input": "Hello."}, id="a text"),
        pytest.param({"input": ["Hello.", "ö\u2028"], "dimensions": 256, "user": "u-1"}, id="texts"),
        pytest.param({"input": [[1, 2], [3]], "encoding_format": "base64"}, id="tokens"),
        pytest.param({"input": [1, 2, 3], "truncate": 1.50}, id="tokens of one text"),
    ],
)
async def test_a_provider_is_asked_in_the_callers_words_for_its_own_model(body: dict[str, Any]) -> None:
    provider = saying(VECTORS)
    await asked(provider, **body, hedgerow={"budget_ms": 500}, stream=True)
    assert provider.body == {**body, "model": "big"}
    (sent,) = provider.requests
    assert (sent.method, sent.url) == ("POST", "http://provider.test/v1/embeddings")
    assert sent.headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(("texts", "large"), [(2, False), (20_000, True)])
async def test_a_large_body_is_written_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, texts: int, large: bool
) -> None:
    threads, posted = list[threading.Thread](), methods.posted

    def noted(own: Original, model: str) -> dict[str, Any]:
        threads.append(threading.current_thread())
        return posted(own, model)

    monkeypatch.setattr(methods, "posted", noted)
    await asked(saying([]), "rerank", query="q", texts=["a"] * texts)
    assert [thread is not threading.main_thread() for thread in threads] == [large]


@pytest.mark.parametrize("api", ["rerank", "moderations"])
async def test_each_method_has_its_own_path(api: str) -> None:
    provider = saying({"results": []})
    await asked(provider, api, query="q", documents=["a", {"text": "b"}])
    assert provider.requests[0].url == f"http://provider.test/v1/{api}"
    assert provider.body["documents"] == ["a", {"text": "b"}]


async def test_azure_has_embeddings_below_the_deployment() -> None:
    provider = saying(VECTORS)
    own = {"base_url": "https://a.test/openai", "model": "e 1", "api_version": "2025-01-01"}
    request = Request((), original=Original("embeddings", b'{"input": "a"}'))
    assert await answer(provider, request, dialect="azure", apis=("embeddings",), **own)
    assert provider.requests[0].url == "https://a.test/openai/deployments/e%201/embeddings?api-version=2025-01-01"


async def test_the_answer_comes_as_it_was_written_and_large_ones_in_pieces() -> None:
    written = json.dumps({**VECTORS, "data": "ä" * 600_000}, ensure_ascii=False, indent=1)
    chunks = await asked(saying(written), input="a")
    assert relayed(chunks) == written
    assert max(len(piece) for chunk in chunks for piece in chunk.relayed) == 256 * 1024
    assert [bool(chunk.finish) for chunk in chunks] == [False, False, False, True]


@pytest.mark.parametrize(
    ("answer", "tokens"),
    [
        (VECTORS, 5),
        ({"usage": {"total_tokens": 9}}, 9),
        ({"meta": {"billed_units": {"input_tokens": 3, "search_units": 1}}}, 3),
        ({"meta": {"billed_units": {"search_units": 1}, "tokens": {"input_tokens": 8.0}}}, 8),
        ({"results": []}, 0),
        ({"usage": None}, 0),
        ({"usage": {"prompt_tokens": -1}}, 0),
        ({"usage": {"prompt_tokens": True, "total_tokens": "9"}}, 0),
        ({"usage": [1], "meta": "x"}, 0),
        ('{"data": [NaN], "usage": {"prompt_tokens": 3}}', 0),
        ('{"usage": {"total_tokens": 3, "x": "\\ud800"}} ', 0),
    ],
)
async def test_tokens_are_those_that_the_provider_counts(answer: object, tokens: int) -> None:
    chunks = await asked(saying(answer), input="a")
    assert relayed(chunks) == (answer if isinstance(answer, str) else json.dumps(answer))
    last = chunks[-1]
    assert last.finish
    assert last.finish.usage.prompt_tokens == tokens
    assert last.finish.usage.completion_tokens == 0


@pytest.mark.parametrize(("value", "tokens"), [("12", 12), ("", 0), ("-1", 0), ("9" * 30, 0), ("٣", 0)])
async def test_an_array_comes_back_as_it_is_and_its_tokens_are_counted_in_a_header(value: str, tokens: int) -> None:
    answer = '[{"index":1,"score":0.9987},{"index":0,"score":1e-5}]'  # Text Embeddings Inference's
    chunks = await asked(saying(answer, **{"x-compute-tokens": value}), "rerank", query="q", texts=["a", "b"])
    assert relayed(chunks) == answer
    assert chunks[-1].finish
    assert chunks[-1].finish.usage.prompt_tokens == tokens


@pytest.mark.parametrize(
    ("provider", "error"),
    [
        (saying({"error": {"message": "no dimensions", "param": "dimensions"}}, 400), RequestRefused),
        (saying({"error": {}}, 429), EngineBusy),
        (saying("", 503), EngineDown),
        (saying("<html>"), EngineDown),
        (saying('"1"'), EngineDown),
        (saying('{"data": [1'), EngineDown),
        (SimulatedProvider(('{"data"', Broken("reset")), headers=JSON), EngineDown),
    ],
    ids=["refused", "busy", "away", "a page", "a text", "half", "broken off"],
)
async def test_failures_are_typed(provider: SimulatedProvider, error: type[Exception]) -> None:
    with pytest.raises(error):
        await asked(provider, input="a", dimensions=7)


async def test_an_answer_has_a_largest_size() -> None:
    engine = saying("1" * 2_000).engine(own={"apis": ["embeddings"], "max_answer_bytes": 1_024})
    with pytest.raises(AnswerTooLarge, match="at most 1024 bytes: send fewer inputs") as refused:
        await answer_of(engine, Request((), original=Original("embeddings", b"{}")))
    assert engine.load().running == 0
    assert not refused.value.retryable


async def test_a_body_that_is_no_object_is_refused() -> None:
    with pytest.raises(InvalidInput, match="a JSON object"):
        await answer(saying(VECTORS), Request((), original=Original("embeddings", b"[]")), apis=["embeddings"])


@pytest.mark.paused
async def test_a_silent_provider_is_given_up_at_the_deadline() -> None:
    engine = SimulatedProvider(silent=True).engine(own={"apis": ["embeddings"]})
    request = Request((), original=Original("embeddings", b'{"input": "a"}'))
    with pytest.raises(TooLate):
        [each async for each in engine.generate(request, Deadline.after(0.2, loop_clock))]


def test_a_model_that_embeds_has_no_conversation_and_one_that_chats_embeds_nothing() -> None:
    embeds = saying(VECTORS).engine(own={"apis": ["embeddings"]}).describe()
    chats = saying(VECTORS).engine().describe()
    conversation = Request((Message("user", "Hello."),))
    original = chat_pb2.Original(api=chat_pb2.API_EMBEDDINGS, body=b"{}")
    method = to_request(llm_pb2.GenerateRequest(original=original))
    check_api(method, embeds)
    check_api(conversation, chats)
    with pytest.raises(NotSupported, match="messages: not supported by big, which has embeddings"):
        check_api(conversation, embeds)
    with pytest.raises(NotSupported, match="embeddings: not supported by big"):
        check_api(method, chats)


def test_a_model_that_chats_has_a_service_of_its_own() -> None:
    with pytest.raises(ValueError, match="a service of its own"):
        OpenAISettings(apis=("chat_completions", "embeddings"))


async def test_methods_have_a_limit_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.llm.providers.engine.MOST_ANSWER_BYTES", 60)
    assert await asked(saying({"data": "a" * 40}), input="a")
    with pytest.raises(AnswerTooLarge, match="at most 60 bytes"):
        await asked(saying({"data": "a" * 60}), input="a")
