"""Commands for the mesh that `hedgerow up mesh.yaml` runs here: its keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.command import cli, run
from tests.integration.running_up import Up, ports_in_a_row, running_up
from tests.integration.test_up_mesh_file import provider
from tests.keys import digest
from tests.marks import starts
from tests.waiting import until

pytestmark = [pytest.mark.mesh, pytest.mark.timeout(300)]
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
        return httpx.post(f"{self.http}/v1/chat/completions", json=turn, headers=headers).status_code

    async def answers(self, key: str, status: int) -> None:
        async def now() -> int:
            return self.asked(key)

        await until(now, holds=lambda got: got == status)


@pytest.fixture(scope="module")
@starts("mesh")
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


def told(*arguments: str) -> dict[str, Any]:
    code, out = cli(*arguments, "--json")
    assert code == 0, out
    answer: dict[str, Any] = json.loads(out)
    return answer


async def test_a_key_is_made_and_revoked_while_the_mesh_runs_and_nothing_starts_again(mesh: Mesh) -> None:
    pids, at = {name: mesh.up.pid(name) for name in ("gateway", "router", "llm-quick")}, ("--mesh", str(mesh.file))
    made = told("keys", "create", "acme", *at)
    await mesh.answers(made["key"], 200)
    assert mesh.asked(FIRST) == 200
    assert "# our first customer" in mesh.file.read_text()
    told("keys", "revoke", made["id"], *at)
    await mesh.answers(made["key"], 401)
    assert mesh.asked(FIRST) == 200
    other = told("keys", "create", "next", "--new", *at)
    await mesh.answers(other["key"], 200)
    assert {name: mesh.up.pid(name) for name in pids} == pids
    refused = await run("keys", "create", "nxt", *at)
    assert (refused.code, refused.out) == (1, "")
    assert "did you mean next?" in refused.err
