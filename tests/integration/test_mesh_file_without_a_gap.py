"""`hedgerow up mesh.yaml` is edited while clients ask, over connections that they keep and over new ones: in one
process, in one for each service, and with two workers. No call may be refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import psutil
import pytest
import yaml
from openai import AsyncOpenAI

import hedgerow
from tests.integration.collector import Collector, collecting
from tests.integration.edited_mesh import Edited
from tests.integration.running_up import ports_in_a_row, running_up
from tests.integration.simulated_provider import provider
from tests.waiting import until

pytestmark = pytest.mark.timeout(300)
KEY = "a-key-of-acme"
PAUSE_S = 0.1  # clients that ask without one take the cores that the mesh starts with, and have fewer answers by it
ASKED: Any = [{"role": "user", "content": "Say something."}]
SHAPES: dict[str, tuple[tuple[str, ...], int]] = {
    "one process": ((), 1),
    "processes": (("--processes",), 1),
    "workers": ((), 2),
}


@pytest.fixture(scope="module", params=SHAPES)
def mesh(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edited]:
    (options, workers), folder = SHAPES[request.param], tmp_path_factory.mktemp("mesh")
    port, file = ports_in_a_row(14), folder / "mesh.yaml"
    with provider() as (_, url):
        content = {
            "models": {"quick": {"url": url, "tier": "fast"}, "good": {"url": url}},
            "tenants": {"acme": {"key_sha256": sha256(KEY.encode()).hexdigest()}},
            "gateway": {"address": port, "http": port + 13, "workers": workers, "plaintext": True},
        }
        file.write_text(yaml.safe_dump(content, sort_keys=False))
        with running_up(folder / "state", port, *options, file=file) as up:
            yield Edited(up, file, shared=request.param == "one process")


@asynccontextmanager
async def asked_all_the_time(mesh: Edited) -> AsyncIterator[None]:
    """Clients by HTTP and by gRPC have answers before the block, during it and after it; none of their calls fails."""
    host, _, port = mesh.up.target.rpartition(":")
    over = asyncio.Event()

    def http() -> AsyncOpenAI:
        return AsyncOpenAI(base_url=f"http://{host}:{int(port) + 13}/v1", api_key=KEY, max_retries=0)

    def grpc() -> hedgerow.AsyncClient:
        return hedgerow.AsyncClient(mesh.up.target, api_key=KEY)

    async def by_http(client: AsyncOpenAI) -> None:
        answer = await client.chat.completions.create(model="good", messages=ASKED)
        assert answer.choices[0].finish_reason == "stop"

    async def by_grpc(client: hedgerow.AsyncClient) -> None:
        assert (await client.ask("Say something.", model="good", cache="bypass")).finish_reason == "stop"

    async def keep_asking(
        connect: Callable[[], Any], ask: Callable[[Any], Awaitable[None]], began: asyncio.Event
    ) -> None:
        async with connect() as kept:
            last = False
            while not last:
                last = over.is_set()
                await ask(kept)
                async with connect() as new:
                    await ask(new)
                began.set()
                await asyncio.sleep(PAUSE_S)

    async with asyncio.TaskGroup() as callers:
        for connect, ask in ((http, by_http), (grpc, by_grpc)):
            callers.create_task(keep_asking(connect, ask, began := asyncio.Event()))
            await began.wait()
        yield
        over.set()


async def follows(mesh: Edited, done: str) -> None:
    await asyncio.to_thread(mesh.follows, done)


async def test_while_a_model_is_added_and_removed(mesh: Edited) -> None:
    before = mesh.up.pid("gateway")
    url = yaml.safe_load(mesh.file.read_text())["models"]["good"]["url"]
    async with asked_all_the_time(mesh), hedgerow.AsyncClient(mesh.up.target, api_key=KEY) as client:
        text = mesh.edit("models", "third", to={"url": url, "replicas": 2})
        await follows(mesh, "llm-third-1 started, llm-third-2 started, router started again, gateway started again")
        assert (await client.ask("Say something.", model="third")).text.startswith("word")
        third, others = mesh.up.pid("llm-third-1"), {mesh.up.pid(name) for name in ("router", "llm-good", "gateway")}
        assert (third == before) is mesh.shared
        mesh.write(text)
        gone = "router started again, gateway started again, llm-third-1 stopped, llm-third-2 stopped"
        await follows(mesh, gone)
        with pytest.raises(hedgerow.NotFound):
            await client.ask("Say something.", model="third")
    assert psutil.pid_exists(third) is (third in others)  # it ends, unless it is the process of other services too
    assert mesh.up.pid("gateway") == before


@pytest.mark.parametrize("mesh", ["one process", "processes"], indirect=True)  # two workers are one of the changes
async def test_while_the_number_of_workers_changes(mesh: Edited) -> None:
    process = psutil.Process(mesh.up.pid("gateway"))
    children = len(process.children())
    async with asked_all_the_time(mesh):
        for count in (2, 3, 1):
            mesh.edit("gateway", "workers", to=count)
            await follows(mesh, "gateway started again")
    assert mesh.up.pid("gateway") == process.pid
    assert len(process.children()) == children


async def test_while_the_gateway_moves_to_another_host(mesh: Edited) -> None:
    port = int(mesh.up.target.rpartition(":")[2])
    async with asked_all_the_time(mesh):
        text = mesh.edit("gateway", "address", to=f"0.0.0.0:{port}")
        await follows(mesh, "gateway started again")
        mesh.edit("gateway", "http", to=f"0.0.0.0:{port + 13}")
        await follows(mesh, "gateway started again")
        mesh.write(text)
        await follows(mesh, "gateway started again")


async def test_while_tracing_begins_and_ends(mesh: Edited) -> None:
    before = {name: mesh.up.pid(name) for name in ("cache", "router", "llm-good", "gateway")}
    text = mesh.file.read_text()
    async with asked_all_the_time(mesh), collecting() as first, collecting() as second:
        for collector in (first, second):
            mesh.edit("tracing", to=f"http://{collector.address}")
            await follows(mesh, "nothing had to start again")
            await until(lambda: traced(collector), holds=lambda seen: seen >= {"gateway", "llm"}, within_s=30)  # noqa: B023
        mesh.write(text)
        await follows(mesh, "nothing had to start again")
    assert {name: mesh.up.pid(name) for name in before} == before


def traced(collector: Collector) -> set[str]:
    """The services whose spans have come."""
    return {span.service for spans in collector.traces.values() for span in spans}
