"""The effect of a tenant's guard and permissions, and of a request's options, on embeddings, rerank and moderations."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from services.gateway.settings.guard import GuardSettings
from tests.clock import loop_clock
from tests.unit.gateway.answer.scene import EVERYTHING
from tests.unit.gateway.http.endpoints.providing import Gateway, body_of
from tests.unit.gateway.scripted import ScriptedLlm

pytestmark = pytest.mark.paused


async def test_fields_without_permission_go_to_no_provider() -> None:
    gateway = Gateway()
    status, answer = await gateway.post("embeddings", model="embed", input="a", api_base="https://elsewhere.test")
    assert (status, answer["error"]["code"]) == (403, "field_denied")
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
    status, answer = await refusing.post("rerank", model="embed", query="ann@example.com", documents=["a"])
    assert (status, answer["error"]["code"], refusing.tokens) == (403, "guard_refused", 0)
    assert "ann@" not in json.dumps(answer)
    assert not refusing.embed.requests


@pytest.mark.parametrize("tokens", [[[5754, 1030]], [5754, 1030], [5754.0], [["a", 1]]], ids=str)
async def test_tokens_are_refused_where_the_guard_cannot_read_them(tokens: Any) -> None:
    gateway = Gateway(tenant=replace(EVERYTHING, guard=GuardSettings(secrets="refuse")))
    status, answer = await gateway.post("embeddings", model="embed", input=tokens)
    assert (status, answer["error"]["param"]) == (400, "input")
    assert "texts in place of tokens" in answer["error"]["message"]
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
    status, answer = await gateway.post("embeddings", model="embed", input="a", hedgerow=options)
    assert (status, answer["error"]["param"]) == (400, field)
    assert not gateway.embed.requests
