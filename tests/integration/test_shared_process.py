"""A process of several services, scripted: the orders that it gets, and its answers."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.processes import ServiceFailed, ServiceProcess, ServiceSpec

# Answers each order with the next line of the script; ends where there is none.
_PROGRAM = """
import json, socket, sys
ours = socket.socket(fileno=0)
orders = ours.makefile("rb")
for answer in json.loads(sys.argv[1]):
    order = json.loads(orders.readline())
    members = [(each["name"], each["service"], each["environment"]) for each in order["members"]]
    print(order["number"], members, flush=True)
    ours.sendall(b"".join(json.dumps(each).encode() + b"\\n" for each in answer))
sys.exit(3)
"""


def members(endpoint: str = "") -> ServiceSpec:
    environment = {"HEDGEROW_LLM_OPENAI__API_KEY": "secret", "TOLD": endpoint}
    return ServiceSpec.together("hedgerow", [ServiceSpec("llm-a", "services.llm", "127.0.0.1:1", environment)])


@asynccontextmanager
async def scripted(folder: Path, *answers: list[dict[str, object]]) -> AsyncIterator[ServiceProcess]:
    spec = replace(members(), command=(sys.executable, "-c", _PROGRAM, json.dumps(answers)))
    process = ServiceProcess(spec, folder)
    try:
        yield process
    finally:
        await process.stop()


def in_force(number: int) -> dict[str, object]:
    return {"number": number, "error": ""}


async def test_a_shared_process_serves_after_its_answer_and_gets_the_environments(tmp_path: Path) -> None:
    async with scripted(tmp_path, [in_force(1)], [in_force(2)], []) as process:
        await process.wait_serving(20)
        assert process.tail() == "1 [('llm-a', 'llm', {'HEDGEROW_LLM_OPENAI__API_KEY': 'secret', 'TOLD': ''})]"
        await process.change(members("more"), 20)
        assert "'TOLD': 'more'" in process.tail()


async def test_an_answer_to_an_order_that_was_given_up_is_no_answer_to_the_next(tmp_path: Path) -> None:
    late: list[dict[str, object]] = [in_force(1), {"number": 2, "error": "port in use"}]
    async with scripted(tmp_path, [], late, []) as process:
        with pytest.raises(ServiceFailed, match="was not serving after 0 s"):
            await process.wait_serving(0.01)
        with pytest.raises(ServiceFailed, match="hedgerow: port in use"):
            await process.change(members(), 20)


async def test_a_shared_process_that_ends_without_an_answer_has_the_end_of_its_log(tmp_path: Path) -> None:
    async with scripted(tmp_path, [in_force(1)]) as process:
        await process.wait_serving(20)
        with pytest.raises(ServiceFailed, match=r"hedgerow ended with exit code 3:\n1 "):
            await process.change(members("more"), 20)
        assert not process.can_change(members())


async def test_tracing_and_the_number_of_workers_are_changes_of_a_running_process(tmp_path: Path) -> None:
    async with scripted(tmp_path, [in_force(1)], []) as process:
        await process.wait_serving(20)
        (llm,) = members().members
        for setting in ("HEDGEROW_LLM_OTLP_ENDPOINT", "HEDGEROW_GATEWAY_WORKERS"):
            changed = replace(llm, environment={**llm.environment, setting: "3"})
            assert process.can_change(ServiceSpec.together("hedgerow", [changed]))
        assert not process.can_change(llm), "a process of one service cannot become a shared process"
