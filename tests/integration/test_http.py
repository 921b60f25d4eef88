"""The gateway by HTTP: unmodified clients, a real gateway process, a scripted model."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI

from tests.conftest import Start
from tests.integration.http_gateway import QUESTION, HttpGateway, start_http_gateway
from tests.integration.scripted import Hold, Refusal
from tests.integration.scripted_llm import ScriptedLlm, end, words
from tests.waiting import budgets_ms, until

PATH = "/v1/chat/completions"


def answers(llm: ScriptedLlm, *script: Any) -> None:
    llm.script = script


async def test_openais_client_gets_an_answer_with_its_account(openai_: AsyncOpenAI) -> None:
    answer = await openai_.chat.completions.create(**QUESTION, extra_body={"hedgerow": {"budget_ms": 5_000}})
    assert answer.choices[0].message.content == "Paris."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 9
    report = answer.model_extra["hedgerow"]
    assert report["budget_ms"] == 5_000
    assert [stage["name"] for stage in report["stages"]] == ["router", "llm"]


async def test_openais_client_reads_a_stream(openai_: AsyncOpenAI) -> None:
    stream = await openai_.chat.completions.create(**QUESTION, stream=True, stream_options={"include_usage": True})
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Paris."
    assert chunks[0].choices[0].delta.role == "assistant"
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens == 7
    assert chunks[-1].model_extra["hedgerow"]["finish_reason"] == "stop"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_refusal_before_the_first_text_keeps_its_status(
    http: httpx.AsyncClient, llm: ScriptedLlm, stream: bool
) -> None:
    answers(llm, Refusal("UNAVAILABLE", "gone"))
    answer = await http.post(PATH, json={**QUESTION, "stream": stream})
    assert answer.status_code == 503
    assert answer.json()["error"].keys() == {"message", "type", "param", "code"}
    assert answer.json()["hedgerow"]["trace_id"] == answer.headers["x-request-id"]


async def test_a_broken_answer_has_an_error_in_its_stream(openai_: AsyncOpenAI, llm: ScriptedLlm) -> None:
    answers(llm, *words("Par"), Refusal("UNAVAILABLE", "gone"))
    with pytest.raises(openai.APIError, match="broke in mid-answer"):
        async for _ in await openai_.chat.completions.create(**QUESTION, stream=True):
            pass


async def test_a_broken_answer_is_no_answer_where_it_is_not_streamed(http: httpx.AsyncClient, llm: ScriptedLlm) -> None:
    answers(llm, *words("Par"), Refusal("UNAVAILABLE", "gone"))
    answer = await http.post(PATH, json=QUESTION)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "interrupted")


async def test_a_spent_budget_is_a_length_that_says_it_was_the_budget(
    http: httpx.AsyncClient, llm: ScriptedLlm
) -> None:
    answers(llm, *words("Par"), Hold())
    budgets = budgets_ms()

    def ask() -> Awaitable[httpx.Response]:
        return http.post(PATH, json=QUESTION, headers={"x-hedgerow-budget-ms": str(next(budgets))})

    answer = await until(ask, holds=lambda answer: answer.status_code == 200)
    assert answer.json()["choices"][0]["finish_reason"] == "length"
    assert answer.json()["choices"][0]["message"]["content"] == "Par"
    assert answer.json()["hedgerow"]["finish_reason"] == "budget"
    assert answer.headers["x-hedgerow-finish-reason"] == "budget"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("header", "code"), [("first-token-ms", "first_token_timeout"), ("budget-ms", "budget_timeout")]
)
async def test_no_text_in_time_is_a_timeout_that_is_not_repeated(
    http: httpx.AsyncClient, llm: ScriptedLlm, stream: bool, header: str, code: str
) -> None:
    answers(llm, Hold())
    answer = await http.post(PATH, json={**QUESTION, "stream": stream}, headers={f"x-hedgerow-{header}": "200"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, code)
    assert answer.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("stream", [True, False])
async def test_silence_in_mid_answer_has_a_clock_of_its_own(
    http: httpx.AsyncClient, llm: ScriptedLlm, stream: bool
) -> None:
    answers(llm, *words("Par"), Hold())
    answer = await http.post(PATH, json={**QUESTION, "stream": stream}, headers={"x-hedgerow-silence-ms": "200"})
    assert answer.status_code == (200 if stream else 504)
    assert json.loads(answer.text.split("data: ")[-1])["error"]["code"] == "silence_timeout"
    await llm.cancelled.wait()


async def test_a_silent_stream_has_heartbeats_that_clients_skip(start: Start, llm: ScriptedLlm) -> None:
    gateway = await start_http_gateway(start, llm, http='{"heartbeat_ms": 100}')
    hold = Hold()
    answers(llm, hold, *words("Paris"), end())
    async with AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="any") as client:
        raw = client.chat.completions.with_streaming_response
        async with raw.create(**QUESTION, stream=True) as response:
            lines = response.iter_lines()
            assert await anext(lines) == ": ping"
            hold.release.set()
            rest = [line async for line in lines]
    assert not any(line == "" for line in rest[: rest.index(next(line for line in rest if line.startswith("data:")))])
    assert rest[-2:] == ["data: [DONE]", ""] or rest[-1] == "data: [DONE]"
    hold.release.clear()
    async with AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="any", _strict_response_validation=True) as client:
        stream = await client.chat.completions.create(**QUESTION, stream=True)
        hold.release.set()
        assert [chunk async for chunk in stream][-1].choices[0].finish_reason == "stop"


async def test_an_error_after_a_heartbeat_is_an_event_of_the_stream(start: Start, llm: ScriptedLlm) -> None:
    gateway = await start_http_gateway(start, llm, http='{"heartbeat_ms": 100}')
    answers(llm, Hold())
    budgets = budgets_ms()
    async with httpx.AsyncClient(base_url=gateway.url, timeout=20) as http:

        def ask() -> Awaitable[httpx.Response]:
            more = {"x-hedgerow-budget-ms": str(next(budgets))}
            return http.post(PATH, json={**QUESTION, "stream": True}, headers=more)

        answer = await until(ask, holds=lambda answer: answer.status_code == 200)
    *pings, last = answer.text.rstrip().split("\n")
    assert set(pings) == {": ping"}
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "budget_timeout"


async def test_ids_come_back_and_traces_go_through(http: httpx.AsyncClient) -> None:
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    sent = {"x-request-id": "mine-1", "traceparent": f"00-{trace_id}-00f067aa0ba902b7-01"}
    answer = await http.post(PATH, json=QUESTION, headers=sent)
    assert answer.headers["x-request-id"] == "mine-1"
    assert answer.headers["traceparent"].split("-")[1] == answer.headers["x-hedgerow-trace-id"] == trace_id
    assert answer.json()["hedgerow"]["trace_id"] == trace_id


async def test_a_key_may_come_in_either_header_and_others_learn_nothing(start: Start, llm: ScriptedLlm) -> None:
    digest = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"  # of `secret`
    tenants = json.dumps({"acme": {"keys": [digest], "requests_per_s": 0.01, "requests_burst": 2}})
    gateway = await start_http_gateway(start, llm, tenants=tenants)
    async with httpx.AsyncClient(base_url=gateway.url, timeout=20) as http:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"x-api-key": "wrong"}):
            for path in (PATH, "/v1/nothing"):
                refused = await http.post(path, json={"model": "x"}, headers=headers)
                assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
            assert (await http.get("/v1/models", headers=headers)).status_code == 401
        for headers in ({"authorization": "Bearer secret"}, {"x-api-key": "secret"}):
            assert (await http.post(PATH, json=QUESTION, headers=headers)).status_code == 200
        over = await http.post(PATH, json=QUESTION, headers={"x-api-key": "secret"})
        assert over.status_code == 429
        assert float(over.headers["retry-after"]) > 10
        assert over.headers["x-ratelimit-remaining-requests"] == "0"
        assert (await http.get("/metrics", headers={"x-api-key": "secret"})).status_code == 501
        assert (await http.get("/health")).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", PATH, 405), ("POST", "/v1/nothing", 404), ("GET", "/", 404)]
)
async def test_an_unknown_route_gets_an_error_body(
    http: httpx.AsyncClient, method: str, path: str, status: int
) -> None:
    answer = await http.request(method, path)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]
    assert answer.headers.get("allow") == ("POST" if status == 405 else None)


async def test_pages_of_named_origins_can_ask(start: Start, llm: ScriptedLlm) -> None:
    gateway = await start_http_gateway(start, llm, http='{"cors_origins": ["http://good.example"]}')
    async with httpx.AsyncClient(base_url=gateway.url, timeout=20) as http:
        for origin, allowed in (("http://good.example", True), ("http://evil.example", False)):
            answer = await http.post(PATH, json=QUESTION, headers={"origin": origin})
            assert (answer.headers.get("access-control-allow-origin") == origin) is allowed
            exposed = answer.headers["access-control-expose-headers"]  # an asterisk stands for all, or for itself
            assert exposed == "*" or "x-hedgerow-trace-id" in exposed.split(", ")


async def test_nothing_of_what_is_asked_is_in_the_log(
    gateway: HttpGateway, http: httpx.AsyncClient, llm: ScriptedLlm
) -> None:
    mark = "zqxmarkerxqz"
    asked = {"model": "m", "messages": [{"role": "user", "content": mark}]}
    for body in (asked, {**asked, "model": mark}, {**asked, "temperature": mark}, {mark: mark}, [mark]):
        assert (await http.post(PATH, json=body, headers={"x-request-id": mark})).status_code in (200, 400, 404)
    await http.post(f"/v1/{mark}", content=mark)
    answers(llm, *words(mark), Refusal("INTERNAL", "broke"))
    assert (await http.post(PATH, json={**asked, "stream": True})).status_code == 200
    assert mark not in gateway.process.log.read_text()
    assert mark not in (await http.get("/metrics")).text
