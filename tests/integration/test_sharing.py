"""A mesh of providers behaves alike in one process and in one for each service, with OpenAI's client and a provider."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

import httpx
import pytest
import pytest_asyncio
import yaml
from openai import APIStatusError, AsyncOpenAI

from bench.provider.server import Behaviour, SimulatedProvider
from launcher.mesh import Mesh
from launcher.meshfile.planning import plan
from launcher.processes import free_ports
from tests.forked import forking_meshes
from tests.integration.collector import Collector, collecting
from tests.integration.running_up import ports_in_a_row
from tests.waiting import budgets_ms, until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]
_numbers = count()
LONG = Behaviour(tokens=1_000, each_ms=20)
# The services with an address for metrics, and the calls that each has had by then.
SERVICES = {
    "cache": 'hedgerow_rpc_seconds_count{code="OK",method="Lookup",service="hedgerow.cache.v1.CacheService"}',
    "router": "hedgerow_rpc_seconds",
    "llm-alone": 'hedgerow_rpc_seconds_count{code="OK",method="Generate",service="hedgerow.llm.v1.LLMService"}',
    "gateway": 'hedgerow_attempts_total{kind="first",model="alone",outcome="ok"}',
}


def _question() -> Any:
    """Another one each time: equal ones go to the replica that has read them."""
    return [{"role": "user", "content": f"{next(_numbers)}: where are you?"}]


@dataclass
class Scene:
    """`m` has two replicas, `first` and `second`; `alone` has one, at `first`."""

    client: AsyncOpenAI
    first: SimulatedProvider
    second: SimulatedProvider
    metrics: dict[str, str]
    collector: Collector
    url: str

    async def ask(self, model: str = "alone", budget_ms: int = 20_000, **options: Any) -> Any:
        """Asks a model, whatever answer is stored."""
        own = {"hedgerow": {"cache": "bypass", "budget_ms": budget_ms}}
        return await self.client.chat.completions.create(model=model, messages=_question(), extra_body=own, **options)

    async def ask_until_met(self, behaviour: Behaviour) -> Any:
        """The answer of the model `m` for which the first provider was called, and behaved so."""
        self.first.upcoming.append(behaviour)
        for _ in range(30):
            answer = await self.ask("m")
            if not self.first.upcoming:
                return answer
        raise AssertionError("the first provider was not chosen")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[True, False], ids=["one process", "processes"])
async def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    folder, port = tmp_path_factory.mktemp("sharing"), ports_in_a_row(40)
    metrics = {name: f"127.0.0.1:{number}" for name, number in zip(SERVICES, free_ports(len(SERVICES)), strict=True)}
    async with AsyncExitStack() as stack:
        first, second = [await stack.enter_async_context(SimulatedProvider()) for _ in range(2)]
        file = folder / "mesh.yaml"
        collector = await stack.enter_async_context(collecting())
        content = _mesh(port, first.url, second.url, metrics) | {"tracing": f"http://{collector.address}"}
        file.write_text(yaml.safe_dump(content))
        planned = await plan(file, folder / "state", share=request.param)
        assert len(planned.specs) == (1 if request.param else len(SERVICES) + 2)
        stack.enter_context(forking_meshes())
        await stack.enter_async_context(Mesh(planned.specs, folder / "state"))
        url = f"http://127.0.0.1:{port + 30}"
        client = await stack.enter_async_context(AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0))
        yield Scene(client, first, second, metrics, collector, url)


def _mesh(port: int, first: str, second: str, metrics: dict[str, str]) -> dict[str, Any]:
    def counted(name: str, **more: object) -> dict[str, Any]:
        return {"settings": {"metrics_address": metrics[name], **more}} if name in metrics else {}

    hedge = {"mode": "fixed", "delay_ms": 100, "max_share": 1}
    return {
        "models": {
            "m": {"url": [first, second], "model": "simulated"},
            "alone": {"url": first, "model": "simulated", **counted("llm-alone")},
        },
        "cache": {"exact": True, "semantic": False, **counted("cache")},
        "router": counted("router"),
        "gateway": {"address": port, **counted("gateway", hedge=hedge, stage_caps_ms={"cache": 10_000})},
    }


async def test_a_caller_that_leaves_stops_the_provider(scene: Scene) -> None:
    scene.first.upcoming.append(LONG)
    stopped = scene.first.counts.stopped
    stream = await scene.ask(stream=True)
    await anext(aiter(stream))
    await stream.close()
    await until(lambda: scene.first.counts.stopped == stopped + 1)


async def test_at_the_end_of_its_budget_an_answer_ends_with_its_text_and_the_provider_stops(scene: Scene) -> None:
    stopped, budgets = scene.first.counts.stopped, budgets_ms()

    async def ask() -> Any:
        scene.first.upcoming[:] = [LONG]
        with suppress(APIStatusError):  # of no text in time
            return await scene.ask(budget_ms=next(budgets))

    answer = await until(ask)
    assert answer.choices[0].message.content.startswith("word ")
    assert answer.hedgerow["finish_reason"] == "budget"
    await until(lambda: scene.first.counts.stopped > stopped)


async def test_a_late_first_text_is_hedged_and_the_slower_call_is_cancelled(scene: Scene) -> None:
    late = Behaviour(tokens=4, first_ms=60_000)
    stopped, met, made = scene.first.counts.stopped, 0, []
    while ("hedge", "won") not in made:  # where the late provider was the second to be called, the first call wins
        answer = await scene.ask_until_met(late)
        made = [(each["policy"], each["action"]) for each in answer.hedgerow["decisions"]]
        met += 1
    await until(lambda: scene.first.counts.stopped == stopped + met)
    spans = await scene.collector.wait_for(answer.hedgerow["trace_id"], {"gateway"})
    events = [event for span in spans if span.service == "gateway" for event in span.events]
    assert [event for event in events if event == "hedgerow.hedge"] == ["hedgerow.hedge"] * 2


async def test_a_provider_that_breaks_off_is_replaced_and_one_alone_is_unavailable(
    scene: Scene,
) -> None:
    answer = await scene.ask_until_met(Behaviour(dies_after=0))
    assert answer.choices[0].message.content.startswith("word ")
    scene.first.upcoming.extend([Behaviour(dies_after=0)] * 4)
    with pytest.raises(APIStatusError) as caught:
        await scene.ask()
    scene.first.upcoming.clear()
    assert caught.value.status_code in (502, 503)
    assert "hedgerow" in caught.value.response.json()


async def test_a_trace_has_the_spans_of_each_service_by_its_name(scene: Scene) -> None:
    answer: Any = await scene.client.chat.completions.create(model="alone", messages=_question())
    spans = await scene.collector.wait_for(answer.hedgerow["trace_id"], {"gateway", "cache", "llm"})
    by_id = {span.span_id: span for span in spans}
    generated = next(span for span in spans if span.name.endswith("LLMService/Generate"))
    assert generated.service == "llm"
    assert by_id[generated.parent_id].service == "gateway"


async def test_each_service_counts_its_calls(scene: Scene) -> None:
    await scene.ask()
    async with httpx.AsyncClient(timeout=30) as client:
        for name, address in scene.metrics.items():
            page = (await client.get(f"http://{address}/metrics")).text
            assert SERVICES[name] in page, name
