"""Answers that are parsed, from a scripted gateway over a real connection."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pydantic
import pytest

import hedgerow
from hedgerow.chat.v1 import chat_pb2
from tests.integration.scripted_gateway import TRACE_ID, ScriptedGateway, answer


@dataclass
class City:
    name: str
    inhabitants: int


class Town(pydantic.BaseModel):
    name: str
    inhabitants: int = pydantic.Field(ge=0)


PARIS = '{"name": "Paris", "inhabitants": 2100000}'


@pytest.mark.parametrize("into", [City, Town])
async def test_the_schema_goes_along_and_the_answer_comes_back_as_an_instance(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient, into: Any
) -> None:
    gateway.script = answer(PARIS)
    got = await client.ask("?", into=into)
    assert (got.parsed, got.text) == (into(name="Paris", inhabitants=2_100_000), PARIS)
    schema = json.loads(gateway.requests[0].response_format.json_schema)
    assert schema["required"] == ["name", "inhabitants"]


@pytest.mark.parametrize(
    ("finish", "kind"), [("LENGTH", hedgerow.Internal), ("BUDGET", hedgerow.DeadlineExceeded)], ids=str
)
async def test_an_answer_that_was_cut_raises_and_keeps_its_text(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient, finish: str, kind: type[hedgerow.HedgerowError]
) -> None:
    gateway.script = answer(PARIS[:9], finish_reason=chat_pb2.FinishReason.Value(f"FINISH_REASON_{finish}"))
    with pytest.raises(kind, match=f"cut off .{finish.lower()}. before the City was whole") as caught:
        await client.ask("?", into=City)
    assert (caught.value.reason, caught.value.trace_id) == ("FORM_CUT", TRACE_ID)
    assert caught.value.partial is not None
    assert caught.value.partial.text == PARIS[:9]


@pytest.mark.parametrize("into", [City, Town])
@pytest.mark.parametrize("text", ["Paris", '{"name": "Paris"}', '{"name": "Paris", "inhabitants": "many"}'])
async def test_an_answer_that_does_not_match_raises(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient, into: Any, text: str
) -> None:
    gateway.script = answer(text)
    with pytest.raises(hedgerow.Internal) as caught:
        await client.ask("?", into=into)
    assert (caught.value.reason, caught.value.partial and caught.value.partial.text) == ("FORM_BROKEN", text)


async def test_a_type_without_a_schema_or_two_forms_are_refused_before_anything_is_sent(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    with pytest.raises(hedgerow.InvalidArgument, match="into: none together with choice, got City"):
        await client.ask("?", into=City, choice=["a"])
    with pytest.raises(hedgerow.InvalidArgument, match="into: the type: a dataclass, a pydantic model"):
        await client.ask("?", into=object)
    with pytest.raises(hedgerow.InvalidArgument, match=r"^into: "):
        await client.ask("?", into=City("Paris", 1))
    assert gateway.requests == []
