"""Third-party programs, each with packages of its own (`tests/clients/`), and a gateway for them to ask."""

from __future__ import annotations

import asyncio
import os
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from bench.environments import NotInstalled, environment, kept, run
from hedgerow.vision.v1 import vision_pb2
from tests.conftest import REPOSITORY, starting
from tests.integration.answering_llm import answering_llm
from tests.integration.http_gateway import HttpGateway, start_http_gateway
from tests.integration.scripted_audio import recording, segment, serve_audio
from tests.integration.scripted_cache import serve_cache
from tests.integration.scripted_vision import TIMING, labels, serve_vision

SCRIPTS = REPOSITORY / "tests/clients"
NEEDED = "HEDGEROW_TESTS_NEED_CLIENTS"  # no package index is then no reason to leave them out; `.ci/run` says so
SEEN, HEARD = "red circle", "Hello there."
WITHIN_S = 600.0  # schemathesis uses 22 s of a processor


class Installed:
    """The folders of what is installed, each fetched when it is first asked for."""

    def python(self, name: str) -> Path:
        """The `bin` of the environment that `<name>.txt` lists."""
        listed = (SCRIPTS / f"{name}.txt").read_text()
        return _there(lambda: environment(f"client-{name}", listed))

    def node(self, listed: str = "") -> Path:
        """`node_modules` as the lock has them, of the folder that is `listed`."""
        if not shutil.which("npm"):
            pytest.skip("there is no npm")
        lock = (SCRIPTS / listed / "package-lock.json").read_text()
        name = f"clients-node{'-' * bool(listed)}{listed}"
        return _there(lambda: kept(name, lock, partial(_npm, SCRIPTS / listed))) / "node_modules"


def _there(install: Callable[[], Path]) -> Path:
    try:
        return install()
    except NotInstalled as problem:
        if NEEDED in os.environ:
            raise
        pytest.skip(f"its packages cannot be fetched ({NEEDED} makes that a failure): {problem}")


def _npm(listed: Path, folder: Path) -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(listed / name, folder)
    run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", folder=folder)


async def output(*command: str | Path, folder: Path | None = None, **environment: str) -> tuple[int, str, str]:
    """How a program ended, and what it said. It finds nothing of ours, and leaves what it leaves in `folder`."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env={**own, **environment}
    )
    try:
        async with asyncio.timeout(WITHIN_S):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, out.decode(), err.decode()


@asynccontextmanager
async def whole_gateway(logs: Path) -> AsyncIterator[HttpGateway]:
    """With everything behind it that a gateway can have, all of it scripted. The cache knows nothing: an answer that is
    not the model's was still waiting to be stored."""
    async with AsyncExitStack() as stack:
        services = (answering_llm(), serve_vision(), serve_audio(), serve_cache())
        llm, vision, audio, cache = [await stack.enter_async_context(each) for each in services]
        vision.script = [vision_pb2.ClassifyResponse(results=[labels((SEEN, 0.99))], timing=TIMING)]
        audio.script = recording(segment(0, HEARD))
        behind = {"vision": vision, "audio": audio, "cache": cache}
        settings = {f"{name}_address": each.target for name, each in behind.items()}
        start = await stack.enter_async_context(starting(logs))
        yield await start_http_gateway(
            start, llm, l1_cache_entries="0", default_budget_ms="20000", responses__ttl_ms="60000", **settings
        )
