"""Commands for the mesh that `hedgerow up mesh.yaml` runs here: its keys, its models, its logs and its end."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import httpx
import pytest

from tests.integration.command import cli, launch, run
from tests.integration.running_up import Up, ports_in_a_row, running_up
from tests.integration.simulated_provider import provider
from tests.keys import digest
from tests.waiting import until

pytestmark = pytest.mark.timeout(300)
FIRST = "the-first-key"


@dataclass
class Mesh:
    up: Up
    file: Path
    http: str

    def asked(self, key: str) -> int:
        """The status of a call with a key."""
        turn = {"model": "quick", "messages": [{"role": "user", "content": "Say something."}], "max_tokens": 4}
        headers = {"authorization": f"Bearer {key}"}
        return httpx.post(f"{self.http}/v1/chat/completions", json=turn, headers=headers, timeout=20).status_code

    async def answers(self, key: str, status: int) -> None:
        async def now() -> int:
            return self.asked(key)

        await until(now, holds=lambda got: got == status)


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    folder, port = tmp_path_factory.mktemp("mesh"), ports_in_a_row(14)
    file = folder / "mesh.yaml"
    with provider() as (_, url):
        file.write_text(f"""\
models:
  quick: {{url: "{url}", tier: fast}}   # a simulated provider

tenants:
  acme: {{key_sha256: {digest(FIRST)}}}   # our first customer
gateway: {{address: {port}, http: {port + 13}}}
cache: false
""")
        with running_up(folder / "state", port, file=file) as up:
            yield Mesh(up, file, f"http://127.0.0.1:{port + 13}")


@contextmanager
def another(folder: Path) -> Iterator[tuple[Popen[str], Path]]:
    """A mesh of its own, which another command is to end; and its state folder."""
    port, file, state = ports_in_a_row(14), folder / "mesh.yaml", folder / "state"
    file.write_text(f"models: {{quick: 'http://127.0.0.1:9/v1'}}\ngateway: {port}\ncache: false\n")
    command = [sys.executable, "-m", "hedgerow_cli", "up", str(file), "--state-dir", str(state)]
    with Popen(command, stdout=PIPE, text=True) as process:
        try:
            assert process.stdout
            while "Ctrl-C stops everything." not in process.stdout.readline():
                assert process.poll() is None
            yield process, state
        finally:
            process.terminate()


def mesh_status(*arguments: str) -> dict[str, Any]:
    code, out = cli(*arguments, "--json")
    assert code == 0, out
    answer: dict[str, Any] = json.loads(out)
    return answer


async def test_a_key_is_made_and_revoked_while_the_mesh_runs_and_nothing_starts_again(mesh: Mesh) -> None:
    pids, at = {name: mesh.up.pid(name) for name in ("gateway", "router", "llm-quick")}, ("--mesh", str(mesh.file))
    made = mesh_status("keys", "create", "acme", *at)
    await mesh.answers(made["key"], 200)
    assert mesh.asked(FIRST) == 200
    assert "# our first customer" in mesh.file.read_text()
    mesh_status("keys", "revoke", made["id"], *at)
    await mesh.answers(made["key"], 401)
    assert mesh.asked(FIRST) == 200
    other = mesh_status("keys", "create", "next", "--new", *at)
    await mesh.answers(other["key"], 200)
    assert {name: mesh.up.pid(name) for name in pids} == pids
    refused = await run("keys", "create", "nxt", *at)
    assert (refused.code, refused.out) == (1, "")
    assert "did you mean next?" in refused.err


async def test_the_models_that_are_served_are_listed_with_a_key(mesh: Mesh) -> None:
    at = ("--state-dir", str(mesh.up.state_dir))
    listed = mesh_status("models", "served", *at, "--api-key", FIRST)
    assert listed["url"] == mesh.http
    assert [(model["name"], model["tier"]) for model in listed["models"]] == [("quick", "fast")]
    assert {"auto", "fast", "quality"} <= set(listed["others"])
    code, out = cli("models", "served", "--url", f"{mesh.http}/v1", "--api-key", FIRST)
    assert (code, out.split()[:2]) == (0, ["quick", "fast"])
    refused = await run("models", "served", *at)
    assert refused.code == 1
    assert f"{mesh.http}/v1/models answers 401: " in refused.err
    unreachable = json.loads(cli("models", "served", "--url", "http://127.0.0.1:9", "--json")[1])
    assert unreachable["error"]["reason"] == "NO_GATEWAY"


async def test_logs_are_shown_of_one_service_or_of_all(mesh: Mesh) -> None:
    at = ("--state-dir", str(mesh.up.state_dir))
    log = mesh.up.state_dir / "logs" / "hedgerow.log"  # of the one process, in which each line names its service

    def shows_the_last_line() -> bool:  # which may have been written after the command read the log
        shown = cli("logs", "gateway", "--tail", "1", *at)
        last = [line for line in log.read_text().splitlines() if " gateway " in line][-1]
        return shown == (0, f"{last}\n")

    await until(shows_the_last_line)
    services = [json.loads(line)["service"] for line in cli("logs", "--json", *at)[1].splitlines()]
    assert {"gateway", "llm-quick", "router"} <= set(services)
    refused = await run("logs", "gatway", *at)
    assert refused.code == 2
    assert "did you mean gateway?" in refused.err


async def test_down_ends_the_mesh_and_with_it_what_follows_its_logs(tmp_path: Path) -> None:
    with another(tmp_path) as (process, state):
        at = ("--state-dir", str(state))
        following = await launch("logs", "--follow", "--tail", "1", *at)
        assert following.stdout
        assert await following.stdout.readline()
        ended = mesh_status("down", *at)["ended"]
        assert ended == [{"state_dir": str(state), "pid": process.pid, "services": ["router", "llm-quick", "gateway"]}]
        assert process.wait(30) == 0
        shown, _ = await following.communicate()
    assert following.returncode == 0
    assert b"gateway | " in shown  # also the lines of its end
    assert cli("down", *at) == (0, f"no mesh runs in {state}: nothing to end\n")
    assert mesh_status("down", *at) == {"ended": []}
    assert cli("logs", "router", *at)[0] == 0  # also of one that has ended
