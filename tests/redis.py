"""A real Redis of a test's own, in a folder of its own, which may be killed, frozen and started again."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from launcher.processes import free_port

_READY_WITHIN_S = 20
PATIENT_S, PATIENT_MS = 10, 10_000  # for Redis to answer: a busy machine is no Redis that is away


class RedisProcess:
    """`redis-server` on a free port of 127.0.0.1. It forgets everything with its process, unless `appendonly`."""

    def __init__(self, folder: Path, appendonly: bool = False):
        self.folder, self.appendonly, self.port = folder, appendonly, free_port()
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self._process, "Redis was not started"
        return self._process.pid

    async def start(self) -> None:
        """Start it, or start it again, on the same port with the same folder. Returns when it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        durability = ["--appendonly", "yes", "--appendfsync", "always"] if self.appendonly else ["--appendonly", "no"]
        place = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        with (self.folder / "redis.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                executable(), *place, "--save", "", *durability, stdout=log, stderr=log
            )
        async with asyncio.timeout(_READY_WITHIN_S), self.client() as client:
            while not await answers(client):
                assert self._process.returncode is None, (self.folder / "redis.log").read_text()
                await asyncio.sleep(0.02)

    async def kill(self) -> None:
        """SIGKILL it, and wait until it is gone. One that is gone already stays so."""
        if self._process and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def restart(self) -> None:
        """SIGKILL it and start it again."""
        await self.kill()
        await self.start()

    def stop(self) -> None:
        """Freeze it: connections stay open, and nothing answers (SIGSTOP)."""
        os.kill(self.pid, signal.SIGSTOP)

    def cont(self) -> None:
        """Let it go on after `stop` (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)

    def client(self) -> AbstractAsyncContextManager[Any]:
        """A client for the test's own eyes and hands: `await client.keys()`, `await client.flushall()`."""
        return client_of(self.url)


@asynccontextmanager
async def client_of(url: str) -> AsyncIterator[Any]:
    client: Any = Redis.from_url(url)
    try:
        yield client
    finally:
        await client.aclose()


@asynccontextmanager
async def redis_server(folder: Path, appendonly: bool = False, started: bool = True) -> AsyncIterator[RedisProcess]:
    """A Redis that is gone afterwards. With `started` False its port answers nothing until `start` is called."""
    server = RedisProcess(folder / "redis", appendonly)
    try:
        if started:
            await server.start()
        yield server
    finally:
        await server.kill()


async def answers(client: Any) -> bool:
    try:
        return bool(await client.ping())
    except Exception:  # not listening yet, or still reading its file
        return False


def executable() -> str:
    """The path of `redis-server`."""
    beside = Path(sys.executable).with_name("redis-server")
    found = shutil.which("redis-server") or (str(beside) if beside.exists() else None)
    assert found, "redis-server is neither in PATH nor beside the Python that runs the tests"
    return found
