"""`hedgerow up` with the real services: started, asked, wounded and stopped."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil
import pytest

from hedgerow.cli.processes import free_port

pytestmark = pytest.mark.timeout(900)  # two engines load, on a machine that may be busy


@dataclass
class Up:
    """A running `hedgerow up`. `lines` holds what it has printed so far."""

    process: subprocess.Popen[str]
    target: str
    state_dir: Path
    lines: list[str]
    _more: threading.Condition

    def read(self, stream: IO[str]) -> None:
        for line in stream:
            with self._more:
                self.lines.append(line.rstrip())
                self._more.notify_all()

    def wait_for(self, line: str, count: int = 1) -> None:
        """Return when `line` was printed so many times."""
        with self._more:
            assert self._more.wait_for(lambda: self.lines.count(line) >= count, 600), self.lines

    def pid(self, name: str) -> int:
        services = json.loads((self.state_dir / "mesh.json").read_text())["services"]
        return int(next(service["pid"] for service in services if service["name"] == name))


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    state_dir, port = tmp_path_factory.mktemp("mesh"), free_port()
    command = [sys.executable, "-m", "hedgerow.cli", "up", "--base-port", str(port), "--state-dir", str(state_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        running = Up(process, f"127.0.0.1:{port}", state_dir, [], threading.Condition())
        assert process.stdout is not None
        reader = threading.Thread(target=running.read, args=[process.stdout])
        reader.start()
        try:
            running.wait_for("Ctrl-C stops everything.")
            yield running
            family = psutil.Process(process.pid).children(recursive=True)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            reader.join()
    assert process.returncode == 0
    assert next(line for line in running.lines if line.endswith(" stopped")) == "gateway stopped"
    assert [child for child in family if _runs(child)] == []
    assert not (state_dir / "mesh.json").exists()


def _runs(process: psutil.Process) -> bool:
    """False also for a zombie, which only waits for its new parent to notice."""
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def cli(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "hedgerow.cli", *arguments], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout


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
    killed = up.pid("cache")
    os.kill(killed, signal.SIGKILL)
    up.wait_for("cache serving", 2)
    assert up.pid("cache") != killed
    assert any(line.startswith("cache died: exit code -9") for line in up.lines)
    test_every_service_serves(up)


async def test_the_demo_gets_the_answers_it_expects() -> None:
    demo = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hedgerow.cli", "demo", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await demo.communicate()
    assert demo.returncode == 0, output.decode()
