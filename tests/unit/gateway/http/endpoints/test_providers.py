"""Embeddings, rerank and moderations by models of providers, behind scripted llm services."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from services.gateway.admission.identity import Tenant
from services.gateway.config import GatewaySettings, Method
from services.gateway.errors import AnswersWaiting
from services.gateway.generation.stack import make_stack
from services.gateway.http.endpoints.auxiliary_admission import Aside
from services.gateway.http.endpoints.embedding import Embedding
from services.gateway.http.endpoints.moderations import Moderations
from services.gateway.http.endpoints.providers import ByName, Own, Providers
from services.gateway.http.errors import Told
from services.gateway.http.server.endpoint import Endpoint
from services.gateway.http.server.exchange import Exchange
from services.gateway.settings.guard import GuardSettings
from services.gateway.upstream.router import Routes
from services.gateway.upstream.translate import AnswerTooLarge
from services.runtime.errors import Exhausted, InvalidInput, Unavailable
from services.runtime.policy.waiting_bytes import WaitingBytes
from services.runtime.routing import Model
from tests.clock import loop_clock
from tests.unit.gateway.answer.scene import EVERYTHING
from tests.unit.gateway.http.endpoints.test_auxiliary_admission import Bills, ScriptedCache, asked
from tests.unit.gateway.http.wire import Wire
from tests.unit.gateway.scripted import ScriptedLlm, ScriptedRoutes, Step, fleet
from tests.waiting import until

pytestmark = pytest.mark.paused

SERVES: Mapping[str, tuple[Method, ...]] = {"embed": ("embeddings", "rerank"), "judge": ("moderations",)}
SETTINGS = GatewaySettings(llm_addresses={"chat": "a:1", "embed": "b:1", "judge": "c:1"}, serves=SERVES)
ANSWER = b'{"object": "list", "data": [{"embedding": [0.25]}], "usage": {"prompt_tokens": 4}}'
PRICED = {"prompt_usd_per_mtok": 20.0}


def says(*pieces: bytes, tokens: int = 4) -> list[Step]:
    """An answer in pieces, and its usage."""
    finish = llm_pb2.Finish(reason=chat_pb2.FINISH_REASON_STOP, usage=chat_pb2.Usage(prompt_tokens=tokens))
    relayed = [llm_pb2.GenerateResponse(relayed=[piece]) for piece in pieces]
    return [*relayed, llm_pb2.GenerateResponse(finish=finish)]


@dataclass
class Gateway:
    """One gateway. `own`: whether it has an embedder of its own; `tokens`: what its tenant was charged."""

    embed: Any = field(default_factory=lambda: ScriptedLlm(*says(ANSWER[:9], ANSWER[9:])))
    judge: Any = field(default_factory=lambda: ScriptedLlm(*says(b'{"results": []}', tokens=0)))
    chat: Any = field(default_factory=ScriptedLlm)
    own: bool = True
    settings: GatewaySettings = SETTINGS
    tenant: Tenant = EVERYTHING
    headers: bytes = b""
    bills: Bills = field(default_factory=Bills)
    answers: WaitingBytes = field(default_factory=lambda: WaitingBytes(2 * len(ANSWER), AnswersWaiting))

    async def post(self, method: Method, **body: Any) -> tuple[int, Any]:
        """The status and the body of the answer."""
        sent = await self.send(method, json.dumps(body))
        await until(lambda: sent.statuses, 600)
        head, _, told = bytes(sent.transport.written).partition(b"\r\n\r\n")
        await sent.end()
        self.headers = head
        return sent.statuses[0], json.loads(told)

    async def send(self, method: Method, body: str) -> Wire:
        async def known(exchange: Exchange) -> None:
            exchange.credential = SimpleNamespace(tenant=self.tenant)
            await self._serving(method)(exchange)

        sent = Wire(Endpoint("/", known, Told.openai, None, SETTINGS.http, False, False, True))
        await sent.send(asked(body))
        return sent

    @property
    def tokens(self) -> int | None:
        (bill,) = self.bills.made
        return bill.cost

    def _serving(self, method: Method) -> ByName:
        llms = fleet(loop_clock, {"retry": {"max_share": 1}}, chat=self.chat, embed=self.embed, judge=self.judge)
        aside = Aside(self.settings, self.bills)
        routes = Routes(SETTINGS.llm_addresses, expected=False, never=SERVES)
        routes._take_rows([priced("embed")])
        embedding = Embedding(aside, ScriptedCache() if self.own else None)
        own: Mapping[Method, Own] = {"embeddings": embedding.embed, "rerank": embedding.rerank}
        providers = Providers(aside, llms, make_stack(llms, lambda _: None), routes, self.answers)
        moderates = method == "moderations"
        return ByName(method, providers, own.get(method, Moderations(aside)), self.own or moderates)


def priced(name: str) -> Model:
    """A row of the router's table."""
    row = ScriptedRoutes((name,)).model(name)
    assert row
    return replace(row, **PRICED)


def body_of(llm: ScriptedLlm) -> Any:
    """The body that the provider's service was asked with, last."""
    return json.loads(llm.requests[-1].original.body)


async def test_a_named_model_gets_the_request_as_it_is_and_its_answer_comes_back_as_it_is_at_its_price() -> None:
    gateway = Gateway()
    body = {"model": "embed", "input": [[1, 2], [3]], "dimensions": 256, "encoding_format": "base64"}
    sent = await gateway.send("embeddings", json.dumps(body, indent=3))
    await until(lambda: sent.statuses, 60)
    headers, _, told = bytes(sent.transport.written).partition(b"\r\n\r\n")
    await sent.end()
    assert (told, gateway.tokens) == (ANSWER, 4)
    assert b"x-hedgerow-cost-usd: 0.00008000" in headers
    assert b"x-hedgerow-model: embed" in headers
    (request,) = gateway.embed.requests
    assert request.original.api == chat_pb2.API_EMBEDDINGS
    assert request.original.body == json.dumps(body, indent=3).encode()


async def test_where_the_provider_counts_nothing_the_size_of_the_body_is_charged() -> None:
    gateway = Gateway()
    await gateway.post("moderations", model="judge", input="x" * 400)
    assert gateway.tokens == gateway.bills.made[0].reserved == len(gateway.judge.requests[0].original.body) // 4


@pytest.mark.parametrize(
    ("method", "named", "by", "own"),
    [
        ("embeddings", "embed", "embed", True),
        ("embeddings", "auto", "e", True),
        ("embeddings", None, "e", True),
        ("embeddings", "e", "e", True),
        ("embeddings", None, "embed", False),  # the first model
        ("rerank", "embed", "embed", True),
        ("rerank", "cosine/e", "cosine/e", True),
        ("moderations", "judge", "judge", True),
        ("moderations", "hedgerow-guard", "hedgerow-guard", True),
        ("moderations", None, "hedgerow-guard", True),
    ],
)
async def test_the_meshs_own_services_keep_their_names(method: Method, named: str | None, by: str, own: bool) -> None:
    gateway = Gateway(own=own)
    given = {"query": "q", "documents": ["a"]} if method == "rerank" else {"input": "a"}
    status, told = await gateway.post(method, **given, model=named)
    called = [name for name in ("embed", "judge") if getattr(gateway, name).requests]
    assert status == 200
    assert (called or [told["model"]]) == [by]


async def test_a_rerank_of_text_embeddings_inference_names_no_model_and_goes_to_the_first() -> None:
    ranked = b'[{"index": 0, "score": 0.9}]'
    gateway = Gateway(embed=ScriptedLlm(*says(ranked)))
    assert await gateway.post("rerank", query="q", texts=["a"]) == (200, json.loads(ranked))
    assert body_of(gateway.embed) == {"query": "q", "texts": ["a"]}


@pytest.mark.parametrize(
    ("method", "named", "own", "known"),
    [
        ("embeddings", "gpt-x", True, "one of embed, e, auto, default"),
        ("embeddings", "gpt-x", False, "one of embed, auto, default"),
        ("embeddings", "chat", True, "one of embed, e, auto, default"),
        ("embeddings", "judge", True, "one of embed, e, auto, default"),
        ("moderations", "embed", True, "one of judge, hedgerow-guard, auto, default"),
    ],
)
async def test_a_model_that_does_not_serve_the_method_is_unknown(
    method: Method, named: str, own: bool, known: str
) -> None:
    gateway = Gateway(own=own)
    status, told = await gateway.post(method, input="a", model=named)
    assert (status, told["error"]["code"], told["error"]["param"]) == (404, "model_not_found", "model")
    assert known in told["error"]["message"]
    assert not [*gateway.chat.requests, *gateway.embed.requests]


@pytest.mark.parametrize(
    ("problem", "status"),
    [
        (Unavailable("embed: gone"), 503),
        (Exhausted("embed: busy", retry_delay_s=2), 429),
        (InvalidInput("dimensions", "256", 7), 400),
    ],
)
async def test_what_a_provider_refuses_is_typed_and_costs_nothing(problem: Exception, status: int) -> None:
    gateway = Gateway(embed=ScriptedLlm(problem))
    answered, told = await gateway.post("embeddings", model="embed", input="a")
    assert (answered, gateway.tokens) == (status, 0)
    assert told["hedgerow"]["trace_id"]


async def test_a_call_that_failed_is_made_again_by_another_replica() -> None:
    broken, well = ScriptedLlm(Unavailable("reset")), ScriptedLlm(*says(ANSWER))
    gateway = Gateway(embed=[broken, well])
    status, told = await gateway.post("embeddings", model="embed", input="a")
    assert (status, told) == (200, json.loads(ANSWER))
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


async def test_what_no_setting_permits_goes_to_no_provider() -> None:
    gateway = Gateway()
    status, told = await gateway.post("embeddings", model="embed", input="a", api_base="https://elsewhere.test")
    assert (status, told["error"]["code"]) == (403, "field_denied")
    picture = {"type": "image_url", "image_url": {"url": "https://elsewhere.test/a.png"}}
    assert (await gateway.post("embeddings", model="embed", input=[picture]))[0] == 403
    assert [bill.cost for bill in gateway.bills.made] == [0, 0]
    assert not gateway.embed.requests


async def test_private_data_is_masked_or_refused_as_in_chat() -> None:
    masking = replace(EVERYTHING, guard=GuardSettings(personal="mask"))
    gateway = Gateway(tenant=masking)
    texts = ["Write to ann@example.com.", "ann@example.com", "plain"]
    assert (await gateway.post("embeddings", model="embed", input=texts, dimensions=5))[0] == 200
    assert body_of(gateway.embed)["input"] == ["Write to [email 1].", "[email 1]", "plain"]
    assert body_of(gateway.embed)["dimensions"] == 5
    refusing = Gateway(tenant=replace(EVERYTHING, guard=GuardSettings(personal="refuse")))
    status, told = await refusing.post("rerank", model="embed", query="ann@example.com", documents=["a"])
    assert (status, told["error"]["code"], refusing.tokens) == (403, "guard_refused", 0)
    assert "ann@" not in json.dumps(told)
    assert not refusing.embed.requests


@pytest.mark.parametrize("tokens", [[[5754, 1030]], [5754, 1030], [5754.0], [["a", 1]]], ids=str)
async def test_tokens_are_refused_where_the_guard_cannot_read_them(tokens: Any) -> None:
    gateway = Gateway(tenant=replace(EVERYTHING, guard=GuardSettings(secrets="refuse")))
    status, told = await gateway.post("embeddings", model="embed", input=tokens)
    assert (status, told["error"]["param"]) == (400, "input")
    assert "texts in place of tokens" in told["error"]["message"]
    assert not gateway.embed.requests


async def test_a_guard_that_the_request_asks_for_is_the_guard_of_its_texts() -> None:
    gateway = Gateway()
    status, _ = await gateway.post(
        "embeddings", model="embed", input="ann@example.com", hedgerow={"guard": "personal=mask"}
    )
    assert (status, body_of(gateway.embed)["input"]) == (200, "[email 1]")


async def test_a_budget_in_the_body_is_the_budget() -> None:
    gateway = Gateway(embed=ScriptedLlm(None))
    began = loop_clock()
    status, _ = await gateway.post("embeddings", model="embed", input="a", hedgerow={"budget_ms": 300})
    assert status == 504
    assert loop_clock() - began < 1


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"cache": "off"}, "hedgerow.cache"),
        ({"guard": "injection=refuse"}, "hedgerow.guard"),
        ({"guard": "personal=mask,answer_personal=mask"}, "hedgerow.guard"),
        ({"budget_ms": "x"}, "hedgerow.budget_ms"),
        ("x", "hedgerow"),
    ],
    ids=str,
)
async def test_options_that_these_methods_do_not_have_are_refused_by_name(options: Any, field: str) -> None:
    gateway = Gateway()
    status, told = await gateway.post("embeddings", model="embed", input="a", hedgerow=options)
    assert (status, told["error"]["param"]) == (400, field)
    assert not gateway.embed.requests


async def test_an_answer_that_is_too_large_is_charged_and_not_asked_for_again() -> None:
    large = AnswerTooLarge("input: an answer of at most 9 bytes", field="input")
    gateway = Gateway(embed=[ScriptedLlm(large), ScriptedLlm(large)])
    status, told = await gateway.post("embeddings", model="embed", input="x" * 400)
    assert (status, told["error"]["code"], told["error"]["param"]) == (400, "answer_too_large", "input")
    (request,) = [request for llm in gateway.embed for request in llm.requests]
    assert gateway.tokens == len(request.original.body) // 4


async def test_answers_that_are_held_have_a_limit_and_are_given_back() -> None:
    gateway = Gateway()
    gateway.answers.take("another", len(ANSWER))
    status, told = await gateway.post("embeddings", model="embed", input="a")
    assert (status, told["error"]["code"], gateway.tokens) == (503, "answers_waiting", 8)
    gateway.answers.give_back("another", len(ANSWER))
    for _ in range(3):
        assert (await gateway.post("embeddings", model="embed", input="a"))[0] == 200
