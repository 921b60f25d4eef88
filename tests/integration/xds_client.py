"""A process whose `xds:///` channels a test may use: gRPC reads its bootstrap once for each process.

As a script it takes one JSON object a line on standard input and answers each with one: `{"target": …, "calls": n}`
makes n calls one after the other, `"tenants": true` each for another tenant and `"tenant"` all for that one;
`{"begin": target}` calls again and again until `{"end": target}`. The answer counts calls by server, and failures.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import grpc.experimental

from hedgerow.channel import open_channel
from launcher.replicas import xds_bootstrap
from tests.conftest import REPOSITORY
from tests.waiting import until

_TIMEOUT_S = 10.0


class XdsClient:
    """The process, from the test's side."""

    def __init__(self, process: asyncio.subprocess.Process):
        self._process = process

    async def calls(self, target: str, count: int = 20, **options: Any) -> Counter[str]:
        """How many of these calls each server answered; a failure counts under its status."""
        return await self._say(target=target, calls=count, **options)

    async def begin(self, target: str) -> None:
        """Call again and again, until `end`."""
        await self._say(begin=target)

    async def end(self, target: str) -> Counter[str]:
        return await self._say(end=target)

    async def until(self, target: str, *addresses: str) -> None:
        """Return once calls reach these and no others."""
        await until(lambda: self.calls(target), holds=lambda reached: set(reached) == set(addresses))

    async def _say(self, **command: Any) -> Counter[str]:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        async with asyncio.timeout(120):
            return Counter(json.loads(await self._process.stdout.readline()))


@asynccontextmanager
async def xds_client(control: str, region: str = "") -> AsyncIterator[XdsClient]:
    """A client that the control plane at `control` configures."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.integration.xds_client"),
        env={**os.environ, "GRPC_XDS_BOOTSTRAP_CONFIG": xds_bootstrap(control, "client-1", None, region)},
        cwd=REPOSITORY,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield XdsClient(process)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


class _Caller:
    """The process, from inside."""

    def __init__(self) -> None:
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._loads: dict[str, tuple[asyncio.Event, asyncio.Task[Counter[str]]]] = {}

    async def obey(self, command: dict[str, Any]) -> Counter[str]:
        if "begin" in command:
            stop = asyncio.Event()
            self._loads[command["begin"]] = stop, asyncio.create_task(self._load(command["begin"], stop))
            return Counter()
        if "end" in command:
            stop, task = self._loads.pop(command["end"])
            stop.set()
            return await task
        tenants = range(command["calls"]) if command.get("tenants") else [command.get("tenant", "t")] * command["calls"]
        return Counter([await self._call(command["target"], str(tenant)) for tenant in tenants])

    async def _load(self, target: str, stop: asyncio.Event) -> Counter[str]:
        counted: Counter[str] = Counter()
        while not stop.is_set():
            counted[await self._call(target, "t")] += 1
            await asyncio.sleep(0.002)
        return counted

    async def _call(self, target: str, tenant: str) -> str:
        channel = self._channels.get(target) or self._channels.setdefault(target, open_channel(f"xds:///{target}"))
        say: Any = channel.unary_unary("/echo.Echo/Say")
        try:
            answer: bytes = await say(b"", timeout=_TIMEOUT_S, metadata=(("x-hedgerow-tenant", tenant),))
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {error.details()}"
        return answer.decode()


async def main() -> None:
    caller = _Caller()
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await caller.obey(json.loads(line))), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
