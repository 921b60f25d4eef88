"""A gateway of several processes on one port: real processes, a simulated model."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
import pytest

import hedgerow
from launcher import processes
from launcher.processes import ServiceSpec, free_port
from services.runtime.process.ports import PortTaken, claim
from tests.conftest import Start
from tests.forked import ServiceProcess
from tests.waiting import until

QUESTION = "What is the capital of France?"
WAIT_S = 30
Launch = Callable[..., Awaitable[ServiceProcess]]


@pytest.fixture
async def gateway(start: Start, tmp_path: Path) -> AsyncIterator[Launch]:
    """Starts a gateway of `workers` processes before a simulated model, and waits until all of them serve."""
    async with AsyncExitStack() as stack:

        async def launch(workers: int = 2, tokens: int = 4, each_ms: int = 0, **settings: str) -> ServiceProcess:
            at = f"127.0.0.1:{free_port()}"
            own = {"ADDRESS": at, "TOKENS": str(tokens), "EACH_MS": str(each_ms)}
            environment = {f"HEDGEROW_SIMULATED_LLM_{name}": value for name, value in own.items()}
            model = ServiceProcess(ServiceSpec("model", "bench.simulated_llm", at, environment), tmp_path / "logs")
            stack.push_async_callback(model.stop)
            await model.wait_serving()
            process = await start(
                "gateway",
                workers=workers,
                metrics_address=f"127.0.0.1:{free_row(workers + 1)}",
                llm_addresses=json.dumps({"m": at}),
                cache_address="",
                router_address="",
                l1_cache_bytes="0",
                **settings,
            )
            await until(lambda: process.log.read_text().count("] serving") == workers, WAIT_S)
            return process

        yield launch


def free_row(count: int) -> int:
    """The first of so many ports in a row that were free a moment ago."""
    while True:
        first = free_port()
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            continue
        return first


def workers(gateway: ServiceProcess) -> list[psutil.Process]:
    """The gateway's worker processes, the oldest first."""
    return sorted(psutil.Process(gateway.pid).children(), key=lambda process: process.create_time())


def answers(gateway: ServiceProcess, worker: int) -> float:
    """How many questions the worker has answered, as its own metrics say."""
    host, _, port = gateway.spec.environment["HEDGEROW_GATEWAY_METRICS_ADDRESS"].rpartition(":")
    with urlopen(f"http://{host}:{int(port) + worker}/metrics", timeout=20) as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("hedgerow_answers_total{"))


async def ask(gateway: ServiceProcess, connections: int) -> None:
    """One question on each of so many connections."""

    async def one() -> None:
        async with hedgerow.AsyncClient(gateway.spec.address) as client:
            assert (await client.ask(QUESTION)).text

    await asyncio.gather(*(one() for _ in range(connections)))


async def test_connections_are_spread_over_workers(gateway: Launch) -> None:
    mesh = await gateway()
    await ask(mesh, 32)
    shares = await until(lambda: [answers(mesh, number) for number in (1, 2)], holds=lambda shares: sum(shares) == 32)
    assert min(shares) > 0


async def test_a_worker_that_dies_is_replaced_and_the_others_go_on(gateway: Launch) -> None:
    mesh = await gateway()
    before = workers(mesh)
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(hedgerow.AsyncClient(mesh.spec.address)) for _ in range(16)]
        theirs = []  # the clients whose connection is the second worker's
        for asked, client in enumerate(clients):
            counted = answers(mesh, 2)
            await client.ask(QUESTION)
            await until(lambda asked=asked: answers(mesh, 1) + answers(mesh, 2) > asked)  # counted after it was sent
            theirs += [client] if answers(mesh, 2) > counted else []
        before[0].kill()
        for client in theirs:
            assert (await client.ask(QUESTION)).text
        assert theirs
    await until(lambda: mesh.log.read_text().count("gateway/1 services.runtime.process.serve [-] serving") == 2, WAIT_S)
    after = workers(mesh)
    assert before[1] in after
    assert before[0] not in after
    assert len(after) == 2
    await ask(mesh, 32)
    await until(lambda: answers(mesh, 1))


async def test_background_threads_of_a_process_give_way_to_all_others(gateway: Launch, tmp_path: Path) -> None:
    of_launcher = processes.ServiceProcess(ServiceSpec("one", "", "", command=("sleep", "60")), tmp_path)
    try:
        pids = [of_launcher.pid, *(worker.pid for worker in workers(await gateway()))]
        assert {os.getsid(pid) for pid in pids} == {os.getsid(0)}  # nice values count inside a session (sched(7))
        assert [os.getpgid(pid) for pid in pids] == pids  # Ctrl-C reaches none of them
    finally:
        await of_launcher.stop()


async def test_on_sigterm_all_workers_finish_their_calls_and_none_is_left(gateway: Launch) -> None:
    mesh = await gateway(tokens=40, each_ms=25, grace_ms="30000")
    processes = workers(mesh)
    begun = [asyncio.Event() for _ in range(12)]

    async def one(first: asyncio.Event) -> Any:
        async with hedgerow.AsyncClient(mesh.spec.address) as client:
            return await client.ask(QUESTION, on_token=lambda _: first.set())

    asked = [asyncio.create_task(one(each)) for each in begun]
    for each in begun:
        await asyncio.wait_for(each.wait(), WAIT_S)
    mesh.signal(signal.SIGTERM)
    answers = await asyncio.gather(*asked)
    assert {answer.finish_reason for answer in answers} == {"stop"}
    assert await asyncio.wait_for(mesh.wait(), WAIT_S) == 0
    assert not any(process.is_running() for process in processes)


async def test_workers_do_not_outlive_a_parent_that_was_killed(gateway: Launch) -> None:
    mesh = await gateway()
    processes = workers(mesh)
    os.kill(mesh.pid, signal.SIGKILL)
    await until(lambda: not any(process.is_running() for process in processes), WAIT_S)
    claim(mesh.spec.address).close()


async def test_a_worker_that_does_not_listen_does_not_outlive_its_parent_either() -> None:
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "from services.runtime.process.workers import end_with_parent; end_with_parent(0); time.sleep(600)"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", deaf, stdin=asyncio.subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.close()
    assert await asyncio.wait_for(process.wait(), WAIT_S) == 1


@pytest.mark.parametrize("count", ["1", "2"])
async def test_a_second_service_on_the_port_of_workers_is_refused(gateway: Launch, tmp_path: Path, count: str) -> None:
    mesh = await gateway()
    environment = {**mesh.spec.environment, "HEDGEROW_GATEWAY_METRICS_ADDRESS": "", "HEDGEROW_GATEWAY_WORKERS": count}
    second = ServiceProcess(
        ServiceSpec("second", "services.gateway", mesh.spec.address, environment), tmp_path / "second"
    )
    assert await asyncio.wait_for(second.wait(), WAIT_S) == 1
    assert mesh.spec.address in second.tail()
    assert len(workers(mesh)) == 2


async def test_settings_that_only_workers_can_refuse_end_all_with_2(tmp_path: Path) -> None:
    (tmp_path / "tenants.yaml").write_text("acme: {wight: 2}\n")
    address = f"127.0.0.1:{free_port()}"
    environment = {
        "HEDGEROW_GATEWAY_ADDRESS": address,
        "HEDGEROW_GATEWAY_WORKERS": "2",
        "HEDGEROW_GATEWAY_LLM_ADDRESSES": '{"m": "127.0.0.1:1"}',
        "HEDGEROW_GATEWAY_ROUTER_ADDRESS": "",
        "HEDGEROW_GATEWAY_TENANTS_FILE": str(tmp_path / "tenants.yaml"),
    }
    process = ServiceProcess(ServiceSpec("gateway", "services.gateway", address, environment), tmp_path / "logs")
    assert await asyncio.wait_for(process.wait(), WAIT_S) == 2
    assert "wight" in process.tail(30)


@pytest.mark.parametrize("family", ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0"])
def test_a_claimed_port_is_shared_only_with_processes_that_share_it(family: str) -> None:
    with claim(family) as held:
        address, options = held.getsockname(), (socket.SO_REUSEADDR, socket.SO_REUSEPORT)
        with socket.socket(held.family) as other:
            other.setsockopt(socket.SOL_SOCKET, options[0], 1)
            with pytest.raises(OSError, match="in use"):
                other.bind(address)
        with pytest.raises(PortTaken, match=rf"cannot listen at .*:{address[1]}: "):
            claim(f"{family.rpartition(':')[0]}:{address[1]}")
        with socket.socket(held.family) as worker:
            for option in options:
                worker.setsockopt(socket.SOL_SOCKET, option, 1)
            worker.bind(address)
            worker.listen()
