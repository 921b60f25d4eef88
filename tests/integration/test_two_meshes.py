"""Two mesh files of one folder run at once: each has its own state, ports, services and stored answers."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import Process
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

import hedgerow
from launcher.processes import check_health
from tests import forked
from tests.integration.command import cli, launch
from tests.integration.running_up import Up, ports_in_a_row, running_up
from tests.integration.simulated_provider import provider
from tests.waiting import until

pytestmark = pytest.mark.timeout(300)
QUESTION = "Who are you?"


@contextmanager
def mesh(folder: Path, name: str, url: str) -> Iterator[Up]:
    port = ports_in_a_row(8)
    gateway = {"address": port, "http": "off", "settings": {"stage_caps_ms": {"cache": 10_000}}}
    content = {"models": {"m": {"url": url}}, "cache": {"exact": True}, "gateway": gateway}
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(content))
    with running_up(folder / ".hedgerow" / "meshes" / name, port, file=file, says_where=False) as up:
        yield up


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Up, Up]]:
    folder = tmp_path_factory.mktemp("both")
    with ExitStack() as stack:
        (_, first), (_, second) = stack.enter_context(provider()), stack.enter_context(provider())
        yield stack.enter_context(mesh(folder, "one", first)), stack.enter_context(mesh(folder, "two", second))


def status(up: Up, *options: str, folder: Path | None = None) -> tuple[int | None, Any]:
    state_dir = ("--state-dir", str(folder or up.state_dir))
    code, out = cli("status", *state_dir, "--json", *options)
    return code, {each["name"]: each for each in json.loads(out)["services"]}


def test_each_has_its_own_processes_ports_and_database(both: tuple[Up, Up]) -> None:
    one, two = (json.loads((up.state_dir / "running.json").read_text())["services"] for up in both)
    assert [each["name"] for each in one] == [each["name"] for each in two]
    assert not {each["pid"] for each in one} & {each["pid"] for each in two}
    assert not {each["address"] for each in one} & {each["address"] for each in two}
    assert all((up.state_dir / "cache.db").exists() for up in both)


async def test_status_shows_the_named_mesh_and_without_a_name_lists_the_meshes(
    both: tuple[Up, Up], monkeypatch: pytest.MonkeyPatch
) -> None:
    for up in both:
        # A service that gets no core for 2 s is UNREACHABLE until it does.
        _, services = await until(lambda up=up: status(up), holds=lambda printed: printed[0] == 0)
        assert {each["health"] for each in services.values()} == {"SERVING"}
        assert services["gateway"]["address"] == up.target
    monkeypatch.chdir(both[0].state_dir.parents[2])
    for command in (["status"], ["ask", QUESTION]):
        code, _, printed = await forked.run("hedgerow_cli", *command)
        said = " ".join(printed.replace("│", " ").split())
        assert code == 2
        assert "2 meshes run here, one is needed: .hedgerow/meshes/one, .hedgerow/meshes/two" in said


async def test_answers_stored_by_one_mesh_are_unknown_to_the_other(both: tuple[Up, Up]) -> None:
    async def asked(up: Up) -> str:
        async with hedgerow.AsyncClient(up.target) as client:
            return (await client.ask(QUESTION, model="m")).cache.verdict

    one, two = both
    assert await asked(one) == "miss"
    await until(lambda: asked(one), holds=lambda verdict: verdict == "exact")
    assert await asked(two) == "miss"
    await until(lambda: asked(two), holds=lambda verdict: verdict == "exact")
    assert cli("cache", "clear", "--state-dir", str(one.state_dir)) == (0, "removed 1\n")
    assert await asked(two) == "exact"
    assert await asked(one) == "miss"


async def test_of_two_meshes_started_with_one_port_one_fails_and_the_other_goes_on(
    tmp_path: Path,
) -> None:
    port = ports_in_a_row(20)
    with provider() as (_, url):
        ups = {
            name: await starting(tmp_path, name, url, port, port + 6 * number)
            for number, name in ((1, "one"), (2, "two"))
        }
        try:
            waiting = {asyncio.create_task(up.wait(), name=name) for name, up in ups.items()}
            async with asyncio.timeout(60):
                (first,), _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            refused = ups.pop(first.get_name())
            printed = b"".join(await refused.communicate()).decode()
            assert refused.returncode == 1, printed
            assert "in use" in printed
            (model,) = ups
            await until(lambda: check_health(f"127.0.0.1:{port}", 20), holds=lambda printed: printed == "SERVING")
            for _ in range(8):  # each on a connection of its own, and so at any socket of the port
                async with hedgerow.AsyncClient(f"127.0.0.1:{port}") as client:
                    answer = await client.ask(QUESTION, model=model, cache="bypass", budget_ms=20_000)
                assert answer.finish_reason == "stop"
        finally:
            for up in ups.values():
                with suppress(ProcessLookupError):
                    up.terminate()
                await up.communicate()
    assert [up.returncode for up in ups.values()] == [0]


async def starting(folder: Path, name: str, url: str, port: int, base_port: int) -> Process:
    """`hedgerow up` of a mesh file with this gateway's port."""
    gateway = {"address": port, "http": "off"}
    content = {"models": {name: {"url": url}}, "base_port": base_port, "gateway": gateway}
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(content))
    return await launch("up", str(file))
