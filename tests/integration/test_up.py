"""`hedgerow up` with the real services: started, asked, wounded and stopped."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys

import pytest

from tests.integration.running_up import Up, cli

# Two engines load, on a machine that may be busy.
pytestmark = [pytest.mark.timeout(900), pytest.mark.engine, pytest.mark.mesh]


def test_every_service_serves(up: Up) -> None:
    code, out = cli("status", "--json", "--state-dir", str(up.state_dir))
    assert code == 0
    assert {service["health"] for service in json.loads(out)["services"]} == {"SERVING"}


def test_a_question_is_answered_with_its_waterfall(up: Up) -> None:
    code, out = cli("ask", "--gateway", up.target, "What is the capital of Norway?")
    assert code == 0
    assert out.splitlines()[0] == "The capital of Norway is Oslo."
    assert any(line.startswith("llm ") for line in out.splitlines())


def test_a_service_that_is_killed_comes_back_and_is_said_so(up: Up) -> None:
    killed, told, served = up.pid("cache"), len(up.lines), up.lines.count("cache serving")
    os.kill(killed, signal.SIGKILL)
    up.wait_for("cache serving", served + 1)
    assert up.pid("cache") != killed
    assert any(line.startswith("cache died: exit code -9") for line in up.lines[told:])
    test_every_service_serves(up)


async def test_the_demo_gets_the_answers_it_expects() -> None:
    demo = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hedgerow.cli", "demo", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await demo.communicate()
    assert demo.returncode == 0, output.decode()
