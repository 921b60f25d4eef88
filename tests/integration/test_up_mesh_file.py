"""`hedgerow up mesh.yaml` with two simulated providers, in one process and in one for each service: asked, edited,
wounded and stopped."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest
import yaml
from openai import AsyncOpenAI

import hedgerow
from tests.integration.command import cli
from tests.integration.edited_mesh import FIRST, Edited
from tests.integration.running_up import ports_in_a_row, running_up
from tests.integration.simulated_provider import provider
from tests.waiting import until

pytestmark = pytest.mark.timeout(300)
ACME = "a-key-of-acme"
PATIENT = {"stage_caps_ms": {"cache": 10_000}}  # a busy machine is no cache that has stored nothing


@pytest.fixture(scope="module", params=[(), ("--processes",)], ids=["one process", "processes"])
def shape(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The options of `hedgerow up`."""
    options: tuple[str, ...] = request.param
    return options


@pytest.fixture(scope="module")
def providers(shape: tuple[str, ...]) -> Iterator[dict[str, tuple[Popen[str], str]]]:
    """Two, each a process of its own, and their URLs."""
    with provider() as quick, provider() as good:
        yield {"quick": quick, "good": good}


@pytest.fixture(scope="module")
def mesh(
    shape: tuple[str, ...],
    tmp_path_factory: pytest.TempPathFactory,
    providers: dict[str, tuple[Popen[str], str]],
) -> Iterator[Edited]:
    folder = tmp_path_factory.mktemp("mesh")
    port, file = ports_in_a_row(14), folder / "mesh.yaml"
    content = {
        "models": {
            "quick": {"url": providers["quick"][1], "tier": "fast", "max_tokens": 64},
            "good": {"url": providers["good"][1], "tier": "quality", "prices": {"input": 1, "output": 2}},
        },
        "tenants": {"acme": {"key_sha256": sha256(ACME.encode()).hexdigest(), "tools": ["*/search_*"]}},
        "gateway": {"address": port, "http": port + 13, "settings": PATIENT},
    }
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    with running_up(folder / "state", port, *shape, file=file) as up:
        yield Edited(up, file, shared=not shape)
    assert up.stopped[-len(FIRST)] == "gateway" if shape else up.stopped[-1] == "hedgerow"


async def ask(mesh: Edited, key: str = ACME, **options: object) -> hedgerow.Answer:
    async with hedgerow.AsyncClient(mesh.up.target, api_key=key) as client:
        return await client.ask("Say something.", cache="bypass", **options)  # type: ignore[arg-type]


async def test_each_provider_answers_for_its_model_and_its_tier(mesh: Edited) -> None:
    assert (await ask(mesh, model="quick")).model == "quick"
    assert (await ask(mesh, tier="quality")).model == "good"
    assert (await ask(mesh, tier="fast")).model in ("quick", "good")  # a better one may be the faster one


async def test_the_command_line_asks_it_and_sees_its_services(mesh: Edited) -> None:
    code, out = cli("ask", "--gateway", mesh.up.target, "--api-key", ACME, "Say something.")
    assert code == 0
    assert out.startswith("word word")
    assert cli("ask", "--gateway", mesh.up.target, "Say something.")[0] == 1  # a call without a key
    # A service that gets no core for 2 s is UNREACHABLE until it does.
    args = ("status", "--state-dir", str(mesh.up.state_dir))
    _, out = await until(lambda: cli(*args), holds=lambda ended: ended[0] == 0)
    assert all(name in out for name in FIRST)


async def test_the_status_says_how_tenants_and_models_are_answered(mesh: Edited) -> None:
    await ask(mesh, model="quick")
    with pytest.raises(hedgerow.HedgerowError):
        await ask(mesh, model="unknown")
    _, out = cli("status", "--over", "0", "--json", "--state-dir", str(mesh.up.state_dir))
    got = json.loads(out)
    (acme,) = (each for each in got["tenants"] if each["name"] == "acme")
    (quick,) = (each for each in got["models"] if each["name"] == "quick")
    assert got["window"]["since_start"]
    assert (
        min(got["mesh"]["per_s"], acme["p50_ms"], acme["p99_ms"], quick["per_s"], quick["p50_ms"], quick["limit"]) > 0
    )
    assert ("acme", "MODEL_UNKNOWN") in {(each["tenant"], each["reason"]) for each in got["errors"]}


async def test_the_cache_is_warmed_counted_and_cleared(mesh: Edited, tmp_path: Path) -> None:
    def counts() -> dict[str, int]:
        code, out = cli("cache", "stats", "--state-dir", str(mesh.up.state_dir), "--json")
        assert code == 0
        (only,) = json.loads(out)["caches"]
        return dict(only)

    async with hedgerow.AsyncClient(mesh.up.target, api_key=ACME) as client:
        await client.ask("Where are you?")
        # Again, for the first is late: the cache loads its embedding model for it. Stored is the one that asked for it.
        await until(lambda: client.ask("How old are you?", cache="use"), holds=lambda _: counts()["entries"] == 1)
    clear = ("cache", "clear", "--state-dir", str(mesh.up.state_dir))
    assert cli(*clear, "--tenant", "acme")[0] == 0
    (tmp_path / "questions.txt").write_text("How are you?\n\nWho are you?\n")
    questions = ("cache", "warm", str(tmp_path / "questions.txt"), "--gateway", mesh.up.target, "--api-key", ACME)
    assert cli(*questions) == (0, "2 asked, 0 known, 0 not kept, 0 failed\n")
    await until(counts, holds=lambda value: value["entries"] == 2, every_s=0.2)  # it gets them after the caller
    assert cli(*questions) == (0, "2 asked, 2 known, 0 not kept, 0 failed\n")
    assert cli(*clear) == (0, "removed 0\n")  # of the tenant `local`
    assert cli(*clear, "--tenant", "acme") == (0, "removed 2\n")
    assert counts()["entries"] == 0


async def test_a_price_is_followed_by_the_router_alone(mesh: Edited) -> None:
    before, dear = mesh.pids(), (await ask(mesh, tier="quality")).cost_usd
    mesh.edit("models", "good", "prices", to={"input": 100, "output": 200})
    mesh.follows("router started again")
    assert await until(lambda: ask(mesh, tier="quality"), holds=lambda answer: answer.cost_usd > 50 * dear)
    assert mesh.pids() == before


async def test_a_file_that_cannot_be_used_is_refused_with_its_lines_and_changes_nothing(mesh: Edited) -> None:
    before = mesh.pids()
    wrong = {"url": "http://127.0.0.1:1/v1", "tier": "best", "options": {"http_version": 3}}
    text = mesh.edit("models", "good", to=wrong)
    mesh.up.wait_for(f"{mesh.file} is refused; the mesh stays as it was")
    shown = [line for line in mesh.up.lines if "models.good.tier: it must be 'fast'" in line]
    assert shown[0].startswith(f"{mesh.file}:8:11: ")
    mesh.edit("models", "good", "tier", to="quality")
    mesh.up.wait_for(f"{mesh.file} is refused; the mesh stays as it was", 2)  # by the service's own code
    assert any("models.good.options.http_version: it must be '1.1' or '2', got 3" in line for line in mesh.up.lines)
    mesh.write(text)
    mesh.follows("nothing had to start again")
    assert (mesh.pids(), (await ask(mesh, tier="quality")).model) == (before, "good")


async def test_a_change_that_does_not_start_is_rolled_back(mesh: Edited) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        text = mesh.edit("gateway", "address", to=taken.getsockname()[1])
        mesh.up.wait_for(f"{mesh.file} is not followed; the mesh goes back to what it was")
        mesh.write(text)
    mesh.follows("nothing had to start again")
    assert (await ask(mesh, tier="quality")).model == "good"


async def test_long_answers_are_finished_by_the_gateway_that_began_them(mesh: Edited) -> None:
    host, _, port = mesh.up.target.rpartition(":")
    asked: Any = [{"role": "user", "content": "Say something long."}]
    words, over = dict[str, list[int]](http=[], grpc=[]), asyncio.Event()

    async def by_http() -> None:
        base = f"http://{host}:{int(port) + 13}/v1"
        async with AsyncOpenAI(base_url=base, api_key=ACME, max_retries=0) as client:
            while not over.is_set():
                stream = await client.chat.completions.create(model="slow", messages=asked, stream=True)
                pieces = [choice.delta.content or "" async for chunk in stream for choice in chunk.choices]
                words["http"].append("".join(pieces).count("word"))

    async def by_grpc() -> None:
        while not over.is_set():
            words["grpc"].append((await ask(mesh, model="slow", budget_ms=20_000)).text.count("word"))

    with provider("--tokens", "100", "--each-ms", "20") as (_, url):
        text = mesh.edit("models", "slow", to={"url": url})
        await asyncio.to_thread(mesh.follows, "llm-slow started, router started again, gateway started again")
        async with asyncio.TaskGroup() as callers:
            _ = [callers.create_task(each()) for each in (by_http, by_grpc)]
            mesh.edit("models", "slower", to={"url": url})
            await asyncio.to_thread(mesh.follows, "llm-slower started, router started again, gateway started again")
            over.set()
        mesh.write(text)
        gone = "router started again, gateway started again, llm-slow stopped, llm-slower stopped"
        await asyncio.to_thread(mesh.follows, gone)
    assert {name: set(counts) for name, counts in words.items()} == {"http": {100}, "grpc": {100}}


async def test_when_a_provider_is_killed_the_other_answers(
    mesh: Edited, providers: dict[str, tuple[Popen[str], str]]
) -> None:
    providers["good"][0].kill()
    providers["good"][0].wait()
    for _ in range(5):
        answer = await ask(mesh, tier="quality")
        assert (answer.model, answer.finish_reason) == ("quick", "stop")
