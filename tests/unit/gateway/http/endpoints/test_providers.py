"""Embeddings, rerank and moderations by models of providers, behind scripted llm services."""

from __future__ import annotations

import asyncio
import json

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from services.gateway.config import Method
from services.gateway.upstream.call_errors import AnswerTooLarge
from services.runtime.errors import Exhausted, InvalidInput, Unavailable
from tests.clock import loop_clock
from tests.unit.gateway.http.endpoints.providing import ANSWER, SETTINGS, Gateway, body_of, says
from tests.unit.gateway.scripted import ScriptedLlm
from tests.waiting import until

pytestmark = pytest.mark.paused


async def test_a_named_model_gets_the_request_as_it_is_and_its_answer_comes_back_as_it_is_at_its_price() -> None:
    gateway = Gateway()
    body = {"model": "embed", "input": [[1, 2], [3]], "dimensions": 256, "encoding_format": "base64"}
    sent = await gateway.send("embeddings", json.dumps(body, indent=3))
    await until(lambda: sent.statuses, 60)
    headers, _, written = bytes(sent.transport.written).partition(b"\r\n\r\n")
    await sent.end()
    assert (written, gateway.tokens) == (ANSWER, 4)
    assert b"x-hedgerow-cost-usd: 0.00008000" in headers
    assert b"x-hedgerow-model: embed" in headers
    (request,) = gateway.embed.requests
    assert request.original.api == chat_pb2.API_EMBEDDINGS
    assert request.original.body == json.dumps(body, indent=3).encode()


async def test_without_a_count_of_the_provider_the_size_of_the_body_is_charged() -> None:
    gateway = Gateway()
    await gateway.post("moderations", model="judge", input="x" * 400)
    assert gateway.tokens == gateway.bills.made[0].reserved == len(gateway.judge.requests[0].original.body) // 4


@pytest.mark.parametrize(
    ("method", "named", "by", "own"),
    [
        ("embeddings", "embed", "embed", True),
        ("embeddings", "auto", "mini", True),
        ("embeddings", None, "mini", True),
        ("embeddings", "mini", "mini", True),
        ("embeddings", None, "embed", False),  # the first model
        ("rerank", "embed", "embed", True),
        ("rerank", "cosine/mini", "cosine/mini", True),
        ("moderations", "judge", "judge", True),
        ("moderations", "hedgerow-guard", "hedgerow-guard", True),
        ("moderations", None, "hedgerow-guard", True),
    ],
)
async def test_the_meshs_own_services_keep_their_names(method: Method, named: str | None, by: str, own: bool) -> None:
    gateway = Gateway(own=own)
    given = {"query": "q", "documents": ["a"]} if method == "rerank" else {"input": "a"}
    status, answer = await gateway.post(method, **given, model=named)
    called = [name for name in ("embed", "judge") if getattr(gateway, name).requests]
    assert status == 200
    assert (called or [answer["model"]]) == [by]


async def test_a_rerank_of_text_embeddings_inference_names_no_model_and_goes_to_the_first() -> None:
    ranked = b'[{"index": 0, "score": 0.9}]'
    gateway = Gateway(embed=ScriptedLlm(*says(ranked)))
    assert await gateway.post("rerank", query="q", texts=["a"]) == (200, json.loads(ranked))
    assert body_of(gateway.embed) == {"query": "q", "texts": ["a"]}


@pytest.mark.parametrize(
    ("method", "named", "own", "known"),
    [
        ("embeddings", "gpt-x", True, "one of embed, mini, auto, default"),
        ("embeddings", "gpt-x", False, "one of embed, auto, default"),
        ("embeddings", "chat", True, "one of embed, mini, auto, default"),
        ("embeddings", "judge", True, "one of embed, mini, auto, default"),
        ("moderations", "embed", True, "one of judge, hedgerow-guard, auto, default"),
    ],
)
async def test_a_model_that_does_not_serve_the_method_is_unknown(
    method: Method, named: str, own: bool, known: str
) -> None:
    gateway = Gateway(own=own)
    status, answer = await gateway.post(method, input="a", model=named)
    assert (status, answer["error"]["code"], answer["error"]["param"]) == (404, "model_not_found", "model")
    assert known in answer["error"]["message"]
    assert not [*gateway.chat.requests, *gateway.embed.requests]


@pytest.mark.parametrize(
    ("problem", "status"),
    [
        (Unavailable("embed: gone"), 503),
        (Exhausted("embed: busy", retry_delay_s=2), 429),
        (InvalidInput("dimensions", "256", 7), 400),
    ],
)
async def test_a_refusal_of_a_provider_is_typed_and_costs_nothing(problem: Exception, status: int) -> None:
    gateway = Gateway(embed=ScriptedLlm(problem))
    answered, answer = await gateway.post("embeddings", model="embed", input="a")
    assert (answered, gateway.tokens) == (status, 0)
    assert answer["hedgerow"]["trace_id"]


async def test_a_call_that_failed_is_made_again_by_another_replica() -> None:
    broken, well = ScriptedLlm(Unavailable("reset")), ScriptedLlm(*says(ANSWER))
    gateway = Gateway(embed=[broken, well])
    status, answer = await gateway.post("embeddings", model="embed", input="a")
    assert (status, answer) == (200, json.loads(ANSWER))
    assert (len(broken.requests), len(well.requests)) == (1, 1)


async def test_an_answer_that_breaks_off_is_no_half_answer_and_not_put_together_of_two() -> None:
    script = [llm_pb2.GenerateResponse(relayed=[ANSWER[:9]]), Unavailable("reset")]
    gateway = Gateway(embed=[ScriptedLlm(*script), ScriptedLlm(*script)])
    status, _ = await gateway.post("embeddings", model="embed", input="a")
    assert status == 503


async def test_a_model_that_is_late_is_given_up_at_the_budget() -> None:
    gateway = Gateway(embed=ScriptedLlm(None), settings=SETTINGS.model_copy(update={"default_budget_ms": 700}))
    began = loop_clock()
    status, _ = await gateway.post("embeddings", model="embed", input="a" * 400)
    assert status == 504
    assert 0.6 < loop_clock() - began < 1
    assert gateway.tokens == len(gateway.embed.requests[0].original.body) // 4


async def test_a_client_that_leaves_ends_the_call() -> None:
    gateway = Gateway(embed=ScriptedLlm(None))
    sent = await gateway.send("embeddings", json.dumps({"model": "embed", "input": "a"}))
    await until(lambda: gateway.embed.calls, 5)
    await sent.end()
    await until(lambda: gateway.embed.calls[0].closed, 5)
    await asyncio.sleep(1)


async def test_an_answer_that_is_too_large_is_charged_and_not_asked_for_again() -> None:
    large = AnswerTooLarge("input: an answer of at most 9 bytes", field="input")
    gateway = Gateway(embed=[ScriptedLlm(large), ScriptedLlm(large)])
    status, answer = await gateway.post("embeddings", model="embed", input="x" * 400)
    assert (status, answer["error"]["code"], answer["error"]["param"]) == (400, "answer_too_large", "input")
    (request,) = [request for llm in gateway.embed for request in llm.requests]
    assert gateway.tokens == len(request.original.body) // 4


async def test_answers_that_are_held_have_a_limit_and_are_given_back() -> None:
    gateway = Gateway()
    gateway.answers.take("another", len(ANSWER))
    status, answer = await gateway.post("embeddings", model="embed", input="a")
    assert (status, answer["error"]["code"], gateway.tokens) == (503, "answers_waiting", 8)
    gateway.answers.give_back("another", len(ANSWER))
    for _ in range(3):
        assert (await gateway.post("embeddings", model="embed", input="a"))[0] == 200
