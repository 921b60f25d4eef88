"""What the policies decide, as a caller sees it: real processes, models with chosen latencies."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import hedgerow
from launcher.processes import ServiceSpec, free_ports
from tests.conftest import Start
from tests.forked import ServiceProcess
from tests.integration.collector import Collector, collecting
from tests.integration.command import run

QUESTION = "What is the capital of France?"


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    async with collecting() as running:
        yield running


@pytest.fixture
async def models(tmp_path: Path) -> AsyncIterator[list[str]]:
    """Addresses of two simulated models: one slow to begin, one quick."""
    async with AsyncExitStack() as stack:
        addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
        for number, (address, first_ms) in enumerate(zip(addresses, (3_000, 5), strict=True)):
            settings = {"ADDRESS": address, "FIRST_MS": str(first_ms), "EACH_MS": "1"}
            environment = {f"HEDGEROW_SIMULATED_LLM_{key}": value for key, value in settings.items()}
            spec = ServiceSpec(f"simulated-{number}", "bench.simulated_llm", address, environment)
            process = ServiceProcess(spec, tmp_path / "logs")
            stack.push_async_callback(process.stop)
            await process.wait_serving()
        yield addresses


def gateway_settings(models: list[str], **settings: str) -> dict[str, str]:
    return {"llm_addresses": json.dumps({"m": models}), "cache_address": "", "router_address": "", **settings}


async def ask_json(gateway: str, *arguments: str) -> tuple[int, dict]:
    code, output, _ = await run("ask", QUESTION, "--json", "--gateway", gateway, *arguments)
    return code, json.loads(output)


async def test_a_hedge_is_in_the_report_and_on_the_trace(start: Start, models: list[str], collector: Collector):
    gateway = await start(
        "gateway",
        **gateway_settings(
            models,
            hedge='{"mode": "fixed", "delay_ms": 50, "max_share": 1}',
            otlp_endpoint=f"http://{collector.address}",
        ),
    )
    answer = {"decisions": []}
    while len(answer["decisions"]) < 2:  # the quick one may be called first, and win though late
        code, answer = await ask_json(gateway.spec.address)
        assert code == 0
    assert [(made["policy"], made["action"]) for made in answer["decisions"]] == [
        ("hedge", "started"),
        ("hedge", "won"),
    ]
    assert answer["decisions"][0]["subject"] == "m#2"
    assert "no first text after" in answer["decisions"][0]["reason"]
    spans = await collector.wait_for(answer["trace_id"], {"gateway"})
    root = next(span for span in spans if span.name.endswith("/Generate"))
    assert root.events == ("hedgerow.hedge", "hedgerow.hedge")


async def test_a_late_first_text_is_a_fixed_text_where_that_is_wanted(start: Start, models: list[str]):
    settings = gateway_settings(models[:1], fallbacks='["template"]', template="Ask again.")
    gateway = await start("gateway", **settings)
    async with hedgerow.AsyncClient(gateway.spec.address) as client:
        answer = await client.ask(QUESTION, first_token_ms=50, allow_fallback=True)
    assert (answer.complete, answer.is_fallback) == (False, True)
    assert (answer.text, answer.degraded) == ("Ask again.", ("llm:template",))
