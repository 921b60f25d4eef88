"""Commands and programs of the README and of the pages on tasks, run against simulated providers."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import grpc
import pytest
import yaml

from launcher.processes import free_port
from tests.contract.test_pages import commands
from tests.integration.collector import collecting
from tests.integration.command import cli
from tests.integration.running_up import Up, ports_in_a_row, running_up
from tests.integration.scripted import Heard
from tests.integration.scripted_gateway import serve_script, turn
from tests.integration.simulated_provider import provider
from tests.waiting import until

pytestmark = pytest.mark.timeout(300)
DOCS = Path(__file__).parents[2] / "docs"
KEYS = {"ACME_KEY": "of-acme", "SUPPORT_KEY": "of-support"}
HTTP = "127.0.0.1:50080"


def block(page: str, language: str, beginning: str) -> str:
    """The block of a page that begins so."""
    text = (DOCS / f"{page}.md").read_text()
    found = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return next(str(each) for each in found if each.startswith(beginning))


def served(page: str, port: int, urls: str | list[str], **more: object) -> str:
    """The mesh file of a page, with ports that are free here, simulated models, and time for what is not a model."""
    content = {**yaml.safe_load(block(page, "yaml", "models:")), **more}
    (model,) = content["models"].values()
    model["url"] = urls
    gateway = content.get("gateway", {})
    settings = {**gateway.get("settings", {}), "stage_caps_ms": {"cache": 10_000, "tools": 20_000}}
    content["gateway"] = {**gateway, "address": port, "settings": settings}
    return yaml.safe_dump(content)


def shell(script: str, port: int, environment: Mapping[str, str]) -> str:
    """The output of a page's script."""
    script = script.replace(HTTP, f"127.0.0.1:{port + 30}")
    given = {**os.environ, **environment}
    return subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=True, env=given, timeout=60
    ).stdout


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Up, int]]:
    """The mesh of docs/tenants.md, and its port."""
    folder, port = tmp_path_factory.mktemp("tenants"), ports_in_a_row(40)
    with provider() as (_, url), pytest.MonkeyPatch.context() as patched:
        for name, key in KEYS.items():
            patched.setenv(name, key)
        (file := folder / "tenants.yaml").write_text(served("tenants", port, url))
        with running_up(folder / "state", port, file=file) as up:
            yield up, port


async def test_the_page_on_tenants_shows_what_the_cache_says(tenants: tuple[Up, int]) -> None:
    script = block("tenants", "sh", "ask()")
    function = script[: script.index('ask "')]
    # A model's identity is a part of the key, and a router that has just started learns it a little later.
    again = f'{function}ask "$SUPPORT_KEY" "How do I close the account?"'
    await until(lambda: shell(again, tenants[1], KEYS), holds=lambda said: "exact" in said, every_s=0.2)
    expected = re.findall(r"# (x-hedgerow-cache: \w+)", script)
    assert len(expected) == 4
    assert shell(script, tenants[1], KEYS).splitlines() == expected


def test_the_page_on_tenants_shows_how_keys_and_quotas_refuse(tenants: tuple[Up, int]) -> None:
    script = block("tenants", "sh", "curl -i")
    said = ""
    while "rate_limit_exceeded" not in said:  # one more is let in for each ten seconds that the calls take
        said = shell(script, tenants[1], KEYS)
    assert re.search(r"^retry-after: \d+$", said, re.MULTILINE)
    assert "invalid_api_key" in shell(script, tenants[1], {"ACME_KEY": "another"})


def test_collections_are_copied_while_they_are_served(tenants: tuple[Up, int], tmp_path: Path) -> None:
    up, _ = tenants
    (tmp_path / "ports.md").write_text("# Ports\n\nThe gateway listens on port 50050.\n")
    put = ("collection", "put", "notes", str(tmp_path / "ports.md"), "--tenant", "acme")
    assert cli(*put, "--state-dir", str(up.state_dir))[0] == 0
    program = block("upgrades", "python", "import sqlite3").replace(".hedgerow/meshes/mesh", str(up.state_dir))
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=60)
    with sqlite3.connect(tmp_path / "collections.db.bak") as copy:
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert copy.execute("PRAGMA user_version").fetchone() == (1,)
        assert "50050" in "".join(copy.iterdump())


def test_the_page_on_hedging_shows_a_hedge_that_wins_and_the_client_of_the_readme_is_answered(tmp_path: Path) -> None:
    port = ports_in_a_row(40)
    with provider("--first-ms", "20") as (_, fast), provider("--first-ms", "2000") as (_, slow):
        (file := tmp_path / "hedging.yaml").write_text(served("hedging", port, [fast, slow]))
        with running_up(tmp_path / "state", port, file=file):
            asked = ("ask", "--model", "sim", "--gateway", f"127.0.0.1:{port}", "Who are you?")
            shown = ""
            while "hedge won" not in shown and shown.count("\ntrace ") < 20:
                shown += cli(*asked)[1]
            program = block("../README", "python", "from openai").replace(HTTP, f"127.0.0.1:{port + 30}")
            said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60).stdout
    assert re.search(r"hedge started: sim#\d \(no first text after \d+ ms \(the fixed delay\)\)", shown), shown
    assert re.search(r"hedge won: sim#\d", shown), shown
    assert re.fullmatch(r"(word )+ [\d.]+ [0-9a-f]{32}\n", said)


async def test_the_page_on_tracing_leads_to_a_trace_and_to_the_metrics_of_its_alerts(tmp_path: Path) -> None:
    port, metrics = ports_in_a_row(40), free_port()
    with provider() as (_, url):
        async with collecting() as collector:
            text = served("tracing", port, url, tracing=f"http://{collector.address}").replace(":9464", f":{metrics}")
            (file := tmp_path / "mesh.yaml").write_text(text)
            with running_up(tmp_path / "state", port, file=file):
                asked = ("ask", "--gateway", f"127.0.0.1:{port}", "--json", "Who are you?")
                code, out = await asyncio.to_thread(cli, *asked)
                assert code == 0
                trace_id = json.loads(out)["trace_id"]
                spans = await collector.wait_for(trace_id, {"gateway", "llm"})
                scraped = await asyncio.to_thread(shell, f"curl -s http://127.0.0.1:{metrics}/metrics", port, {})
    assert any(span.attributes.get("hedgerow.finish_reason") == "stop" for span in spans)
    assert 'hedgerow_target_measured_total{what="total"} 1.0' in scraped
    assert 'hedgerow_answers_total{cache="bypass",finish_reason="stop"' in scraped


def test_the_commands_of_the_page_on_collections_and_the_clients_of_the_page_on_http_are_answered(
    tmp_path: Path,
) -> None:
    port = ports_in_a_row(40)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "redis.md").write_text("# Redis\n\nWhile Redis is down, each gateway decides alone.\n")
    with provider() as (_, url):
        mesh = {"models": {"sim": {"url": url, "model": "simulated"}}, "gateway": {"address": port}}
        (file := tmp_path / "mesh.yaml").write_text(yaml.safe_dump(mesh))
        with running_up(tmp_path / "state", port, file=file):
            where = {"ask": ("--gateway", f"127.0.0.1:{port}")}
            shown = ""
            for words in (line for line in commands(DOCS / "collections.md") if line[0] != "up"):
                given = [str(tmp_path / "docs") if word.rstrip("/") == "docs" else word for word in words]
                code, out = cli(*given, *where.get(words[0], ("--state-dir", str(tmp_path / "state"))))
                assert code == 0, (words, out)
                shown += out
            program = block("http", "python", "import anthropic").replace(HTTP, f"127.0.0.1:{port + 30}")
            said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60).stdout
            streamed = shell(block("http", "sh", "curl -N"), port, {})
    assert "each gateway decides alone" in shown
    assert re.fullmatch(r"(word )+ [\d.]+\n(word )+\n", said)
    assert streamed.rstrip().endswith("data: [DONE]")


async def test_the_program_on_the_page_on_speech_talks_with_a_microphone(tmp_path: Path) -> None:
    (recorder := tmp_path / "arecord").write_text("#!/bin/sh\nhead -c 16000 /dev/zero\n")
    recorder.chmod(0o755)
    program = block("speech", "python", "import subprocess")
    async with serve_script() as gateway:
        gateway.script = [Heard(), *turn(0, "Which city?", "Pa", "ris."), *turn(1, "And of Spain?", "Mad", "rid.")]
        spoken = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program.replace("127.0.0.1:50050", gateway.target)),
            env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await asyncio.wait_for(spoken.communicate(), 60)
    assert out.decode() == "\n> Which city?\nParis.\n> And of Spain?\nMadrid."


def test_the_tool_service_on_its_page_is_called_for_an_answer(tmp_path: Path) -> None:
    port, tools = ports_in_a_row(40), free_port()
    program = block("own-tool", "python", "import asyncio").replace("127.0.0.1:50070", f"127.0.0.1:{tools}")
    with provider() as (_, url), subprocess.Popen([sys.executable, "-c", program]) as service:
        try:
            text = served("own-tool", port, url).replace("127.0.0.1:50070", f"127.0.0.1:{tools}")
            (file := tmp_path / "mesh.yaml").write_text(text)
            with grpc.insecure_channel(f"127.0.0.1:{tools}") as channel:
                grpc.channel_ready_future(channel).result(timeout=30)
            with running_up(tmp_path / "state", port, file=file):
                asked = ("--gateway", f"127.0.0.1:{port}", "--json")
                listed = cli("tools", *asked)[1]
                code, out = cli("ask", *asked, "--tool", 'weather={"city": "Oslo"}', "Do I need a coat?")
        finally:
            service.terminate()
    assert json.loads(listed)["tools"][0]["name"] == "weather"
    assert code == 0
    (called,) = [stage for stage in json.loads(out)["stages"] if stage["name"] == "tool:weather"]
    assert called["outcome"] == "ok"
