"""Two tenants of one gateway under pressure: a flood of large bodies is refused, and the calls of the other are not."""

from __future__ import annotations

import asyncio
import json

import httpx

from tests.conftest import Start
from tests.integration.http_gateway import QUESTION, start_http_gateway
from tests.integration.scripted_llm import ScriptedLlm
from tests.keys import tenants
from tests.waiting import until

_LARGE = json.dumps({"model": "m", "messages": [{"role": "user", "content": "a"}] * 20_000}).encode()
_SMALL = json.dumps(QUESTION).encode()
_PRESSED = {"shed__lag_ms": "1", "shed__cpu": "0.05"}  # of a test: a busy event loop is pressure on any machine
_REFUSALS, _HONEST = 5, 10


async def test_the_tenant_that_floods_is_refused_and_the_other_is_answered(start: Start, llm: ScriptedLlm) -> None:
    gateway = await start_http_gateway(
        start, llm, tenants=json.dumps(tenants("flood", "quiet")), profile="transparent", **_PRESSED
    )
    refusals, answered = list[httpx.Response](), list[int]()
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as http:

        async def ask(tenant: str, body: bytes) -> httpx.Response:
            headers = {"authorization": f"Bearer key-{tenant}", "content-type": "application/json"}
            return await http.post("/v1/chat/completions", content=body, headers=headers)

        async def flood() -> None:
            while len(refusals) < _REFUSALS or len(answered) < _HONEST:
                if (answer := await ask("flood", _LARGE)).status_code == 429:
                    refusals.append(answer)

        await until(lambda: ask("quiet", _SMALL), holds=lambda answer: answer.status_code == 200)
        flooding = [asyncio.create_task(flood()) for _ in range(2)]
        while not all(each.done() for each in flooding):
            answered.append((await ask("quiet", _SMALL)).status_code)
            await asyncio.sleep(0.02)
        await asyncio.gather(*flooding)
    assert {*answered} == {200}
    problems = [json.loads(each.content) for each in refusals]
    assert all("times its fair share of the recent work" in each["error"]["message"] for each in problems)
    assert all(each.headers["retry-after"] for each in refusals)
    (decision,) = problems[0]["hedgerow"]["decisions"]
    assert (decision["policy"], decision["action"]) == ("shed", "refused")
