"""Answers that are to have a form, of a provider that does not keep it: a real llm service and a real gateway before a
simulated provider, asked by our SDK, by OpenAI's client and by the command line."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel

import hedgerow
from tests.conftest import Start
from tests.integration import command
from tests.integration.careless_provider import CarelessProvider, careless_provider
from tests.integration.http_gateway import HttpGateway, start_http_gateway
from tests.integration.scripted import Hold
from tests.integration.scripted_llm import ScriptedLlm, end, scripted_llm, words
from tests.waiting import until

SCHEMA = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
PROSE, WRONG, FIVE = ("It is five.", "stop"), ('{"sum": "5"}', "stop"), ('{"sum": 5}', "stop")
CUT = ('{"sum": ', "length")
ASKED: Any = {"model": "m", "messages": [{"role": "user", "content": "What is 2 plus 3?"}]}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "sum", "schema": SCHEMA}}


class Sum(BaseModel):
    sum: int


@pytest.fixture
async def provider() -> AsyncIterator[CarelessProvider]:
    async with careless_provider() as running:
        yield running


@pytest.fixture
async def gateway(start: Start, provider: CarelessProvider, llm: ScriptedLlm) -> HttpGateway:
    own = {"openai__base_url": provider.url, "openai__model": "careless"}
    service = await start("llm", engine="openai", model_name="m", **own)
    return await start_http_gateway(start, llm, llm_addresses=json.dumps({"m": service.spec.address}))


def forms(decisions: Any) -> list[str]:
    return [made.action for made in decisions if made.policy == "form"]


async def test_the_sdk_gets_what_matches_or_an_error_that_says_where(
    gateway: HttpGateway, provider: CarelessProvider
) -> None:
    async with hedgerow.AsyncClient(gateway.process.spec.address) as client:
        provider.says(FIVE)
        answer = await client.ask("2 + 3?", model="m", json_schema=SCHEMA)
        assert (answer.text, forms(answer.decisions)) == (FIVE[0], ["valid"])
        for said, where in ((PROSE, "it is no JSON"), (WRONG, "#/properties/sum/type")):
            provider.says(said, FIVE)
            with pytest.raises(hedgerow.Internal) as broken:
                await client.ask("2 + 3?", model="m", json_schema=SCHEMA)
            assert (broken.value.reason, broken.value.metadata["where"]) == ("FORM_BROKEN", where)
            assert forms(broken.value.decisions) == ["failed"]
            assert len(provider.asked) == 1
        provider.says(CUT)
        cut = await client.ask("2 + 3?", model="m", json_schema=SCHEMA, repair=True)
        assert (cut.text, cut.finish_reason, cut.degraded) == (CUT[0], "length", ("form:cut",))
        provider.says(WRONG, FIVE)
        results = dict([item async for item in client.batch(["2 + 3?"], model="m", json_schema=SCHEMA)])
        assert isinstance(results[0], hedgerow.Answer)
        assert (results[0].text, forms(results[0].decisions)) == (FIVE[0], ["repaired"])


async def test_a_repaired_answer_replaces_what_was_streamed(gateway: HttpGateway, provider: CarelessProvider) -> None:
    provider.says(PROSE, FIVE)
    tokens: list[str] = []
    async with hedgerow.AsyncClient(gateway.process.spec.address) as client:
        hooks = {"on_token": tokens.append, "on_replaced": lambda text: tokens.append(f"→ {text}")}
        answer = await client.ask("2 + 3?", model="m", json_schema=SCHEMA, repair=True, **hooks)
    assert "".join(tokens) == f"{PROSE[0]}→ {FIVE[0]}"
    assert (answer.text, forms(answer.decisions)) == (FIVE[0], ["repaired"])
    again = provider.asked[1]["messages"]
    assert [message["role"] for message in again] == ["user", "assistant", "user"]
    assert again[1]["content"] == PROSE[0]
    assert json.dumps(SCHEMA) in again[2]["content"]


async def test_openais_client_gets_a_repaired_answer_or_an_error_that_is_not_repeated(
    gateway: HttpGateway, provider: CarelessProvider
) -> None:
    async with AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=2) as client:
        provider.says(PROSE, FIVE)
        parsed = await client.chat.completions.parse(**ASKED, response_format=Sum)
        assert parsed.choices[0].message.parsed == Sum(sum=5)
        assert len(provider.asked) == 2
        provider.says(WRONG)
        with pytest.raises(openai.InternalServerError) as broken:
            await client.chat.completions.create(**ASKED, response_format=FORMAT)
        assert (broken.value.status_code, broken.value.code) == (502, "form_broken")
        assert len(provider.asked) == 2  # the first, and its repair
        provider.says(WRONG, FIVE)
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(
                **ASKED, response_format=FORMAT, extra_body={"hedgerow": {"repair": False}}
            )
        assert len(provider.asked) == 1
        provider.says(CUT)
        with pytest.raises(openai.LengthFinishReasonError):
            await client.chat.completions.parse(**ASKED, response_format=Sum)


YES_OR_NO: Any = {"structured_outputs": {"choice": ["yes", "no"]}}
GRAMMAR = 'start: "yes" | "no"'


async def test_choices_and_grammars_are_sent_to_a_server_with_them_and_a_choice_is_checked(
    start: Start, provider: CarelessProvider, llm: ScriptedLlm, tmp_path: Path
) -> None:
    own = {"openai__base_url": provider.url, "openai__model": "careless", "openai__features": '["choice", "grammar"]'}
    service = await start("llm", engine="openai", model_name="m", **own)
    gateway = await start_http_gateway(start, llm, llm_addresses=json.dumps({"m": service.spec.address}))
    async with AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=0) as client:
        provider.says(("Yes!", "stop"), ("yes", "stop"))
        answer = await client.chat.completions.create(**ASKED, extra_body=YES_OR_NO)
        assert answer.choices[0].message.content == "yes"
        assert [asked["structured_outputs"] for asked in provider.asked] == [{"choice": ["yes", "no"]}] * 2
        provider.says(("Yes!", "stop"))
        with pytest.raises(openai.InternalServerError) as broken:
            await client.chat.completions.create(**ASKED, extra_body=YES_OR_NO)
        assert broken.value.code == "form_broken"
    (file := tmp_path / "answer.lark").write_text(GRAMMAR)
    asked = ("ask", "--gateway", gateway.process.spec.address, "--model", "m", "Is it?")
    provider.says(("no", "stop"))
    code, said, _ = await command.run(*asked, "--json", "--grammar", str(file))
    assert (code, forms_of(said)) == (0, ["constrained"])
    assert provider.asked[-1]["structured_outputs"] == {"grammar": GRAMMAR}
    code, said, _ = await command.run(*asked, "--json", "--choice", "no", "--choice", "yes")
    assert (code, forms_of(said)) == (0, ["valid"])
    code, _, err = await command.run(*asked, "--choice", "no", "--grammar", str(file))
    assert code != 0
    assert "one of json_schema, regex, choice and grammar, got grammar and choice" in err


def forms_of(account: str) -> list[str]:
    return [made["action"] for made in json.loads(account)["decisions"] if made["policy"] == "form"]


async def test_a_stream_of_openais_ends_with_an_error_and_is_never_replaced(
    gateway: HttpGateway, provider: CarelessProvider
) -> None:
    async with AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=0) as client:
        provider.says(PROSE, FIVE)
        stream = await client.chat.completions.create(**ASKED, response_format=FORMAT, stream=True)
        said: list[str] = []
        with pytest.raises(openai.APIError) as broken:
            await _read(stream, said)
        assert ("".join(said), broken.value.code) == (PROSE[0], "form_broken")
        for option in ("repair", "cascade_at_once"):
            own = {"hedgerow": {option: True, "cascade": "rules"}}
            with pytest.raises(openai.BadRequestError) as refused:
                await client.chat.completions.create(**ASKED, stream=True, extra_body=own)
            assert refused.value.param == f"hedgerow.{option}"


async def _read(stream: AsyncIterator[Any], said: list[str]) -> None:
    async for chunk in stream:
        said += [chunk.choices[0].delta.content or ""]


async def test_the_command_line_shows_what_was_found(gateway: HttpGateway, provider: CarelessProvider) -> None:
    asked = (
        "ask",
        "--gateway",
        gateway.process.spec.address,
        "--model",
        "m",
        "--json-schema",
        json.dumps(SCHEMA),
        "2 + 3?",
    )
    provider.says(WRONG, FIVE)
    code, _, err = await command.run(*asked)
    assert code == 1
    assert "#/properties/sum/type" in err
    provider.says(PROSE, FIVE)
    code, out, err = await command.run(*asked, "--repair")
    assert code == 0, err
    assert out.startswith(FIVE[0])  # in a pipe, the last one alone
    assert PROSE[0] not in out
    assert "form repaired" in out


CATALOGUE = [
    {"name": "quick", "tier": "fast", "context_tokens": 4_096, "expected_total_ms": 100},
    {"name": "better", "tier": "quality", "context_tokens": 4_096, "expected_total_ms": 500},
]


async def test_a_cascade_that_streams_at_once_is_replaced_by_the_better_answer(start: Start, llm: ScriptedLlm) -> None:
    router = await start("router", models=json.dumps(CATALOGUE))
    async with scripted_llm() as better:
        hold = Hold()
        llm.script = [*words("I don't ", "know."), end()]
        better.script = [hold, *words("It is ", "five."), end()]
        running = await start_http_gateway(
            start,
            llm,
            llm_addresses=json.dumps({"quick": llm.target, "better": better.target}),
            router_address=router.spec.address,
        )
        shown = [""]
        async with hedgerow.AsyncClient(running.process.spec.address) as client:
            await until(
                lambda: client.ask("2 + 3?", tier="fast"), holds=lambda got: "router:unavailable" not in got.degraded
            )
            stream = client.stream("2 + 3?", cascade=["rules"], cascade_at_once=True)
            async for event in stream:
                if isinstance(event, hedgerow.TextDelta):
                    shown.append(shown[-1] + event.text)
                    if event.text == "know.":
                        hold.release.set()
                elif isinstance(event, hedgerow.Patch):
                    assert event.replaces
                    shown.append(event.text)
                elif isinstance(event, hedgerow.Final):
                    answer = event.answer
        assert shown == ["", "I don't ", "I don't know.", "It is ", "It is five."]
        assert (answer.text, answer.model) == ("It is five.", "better")
        assert [(made.policy, made.action) for made in answer.decisions] == [("cascade", "escalated")]
