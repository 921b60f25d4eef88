"""Fixtures of several kinds of tests."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import httpx._transports.default
import httpx2._transports.default
import pytest
import setuptools  # noqa: F401  # torch's extensions import it, and it must come before distutils, which others import
from xdist.scheduler import LoadFileScheduling

from hedgerow.channel import PING_TIMEOUT_VARIABLE
from launcher.processes import ServiceSpec, free_port
from tests.examples import load_profiles
from tests.forked import ServiceProcess
from tests.models import MODELS

# Where the tests run in the background, a shell may ignore Ctrl-C, and every process that they start would inherit
# that.
signal.signal(signal.SIGINT, signal.default_int_handler)
# httpx reads 140 certificates of authorities for each client, 24 ms: the clients of the tests, thousands, share them.
# httpx2 is that of OpenAI's and Anthropic's clients.
for _transports in (httpx._transports.default, httpx2._transports.default):
    _transports.create_ssl_context = cache(_transports.create_ssl_context)  # type: ignore[attr-defined]
# Where this package is installed, jsonschema spends a second on its grammar. Nothing here checks that format.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
# gRPC's engine would end with its last channel or server, and wait for ever where a call has not ended in gRPC's core
# (https://github.com/grpc/grpc/issues/22365): seen once in some thirty runs.
grpc.aio.init_grpc_aio()
load_profiles()
# Tests beside each other leave a process without a core for longer than a mesh waits for one.
_PING_TIMEOUT_MS = "5000"
REPOSITORY = Path(__file__).parents[1]
Start = Callable[..., Awaitable[ServiceProcess]]
# The files of each of these folders share a mesh, an engine or a copy of the tree, which takes half a minute.
_SHARED = (
    "tests/contract/checklists/",
    *(f"tests/integration/{folder}/" for folder in ("public", "real_mesh", "vllm_engine")),
)


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("--faults-report", default=False):  # that measures how soon a silent peer is found
        os.environ.setdefault(PING_TIMEOUT_VARIABLE, _PING_TIMEOUT_MS)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is imported and collected stays: to look through it for garbage takes a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


class _LoadFileScheduling(LoadFileScheduling):
    """`--dist loadfile`, where the files of a folder that share something count as one."""

    def _split_scope(self, nodeid: str) -> str:
        return next(filter(nodeid.startswith, _SHARED), super()._split_scope(nodeid))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return _LoadFileScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture
def models() -> Path:
    """The folder with the project's own models."""
    return MODELS


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts `services.<service>` on a free port, waits until it serves, and stops it after the test."""
    async with starting(tmp_path / "logs") as start:
        yield start


@asynccontextmanager
async def starting(logs: Path) -> AsyncIterator[Start]:
    """The same for a fixture of more than one test."""
    async with AsyncExitStack() as stack:

        async def start(service: str, name: str = "", address: str = "", **settings: str) -> ServiceProcess:
            address = address or f"127.0.0.1:{free_port()}"
            prefix = f"HEDGEROW_{service.upper()}_"
            environment = {f"{prefix}{key.upper()}": str(value) for key, value in settings.items()}
            spec = ServiceSpec(
                name or service, f"services.{service}", address, {**environment, f"{prefix}ADDRESS": address}
            )
            process = ServiceProcess(spec, logs)
            stack.push_async_callback(process.stop)
            await process.wait_serving()
            return process

        yield start
