"""Services of one process that write down when they start and stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from google.protobuf.descriptor import ServiceDescriptor

from hedgerow.gateway.v1 import gateway_pb2
from hedgerow.llm.v1 import llm_pb2
from launcher.processes import free_ports
from services.runtime.process.config import ServiceSettings
from services.runtime.process.serve import Service
from services.runtime.process.together import HostedService, Together
from services.runtime.rpc.boundary import Call
from services.runtime.security import tls
from tests.waiting import until

LLM = llm_pb2.DESCRIPTOR.services_by_name["LLMService"]
GATEWAY = gateway_pb2.DESCRIPTOR.services_by_name["GatewayService"]


class FrontSettings(ServiceSettings):
    """Settings of a front with an HTTP API, which it does not serve here."""

    http_address: str = ""
    workers: int = 1

    @property
    def processes(self) -> int:
        return self.workers

    @property
    def shared_addresses(self) -> tuple[str, ...]:
        return "address", "http_address"


class Model:
    """Answers with its context."""

    def __init__(self, tokens: int):
        self.tokens = tokens

    async def GetModel(self, request: llm_pb2.GetModelRequest, call: Call) -> llm_pb2.GetModelResponse:
        return llm_pb2.GetModelResponse(context_tokens=self.tokens)


class Scene:
    """Services that write down when they start and stop. `dial` is that of the front."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.dial: tls.Dial | None = None
        self.going = asyncio.Event()  # the front starts once it is set
        self.going.set()
        self.ports = free_ports(4)

    def llm(self, name: str, port: int, tokens: int = 1, fails: bool = False, **more: Any) -> HostedService:
        @asynccontextmanager
        async def assemble(settings: ServiceSettings) -> AsyncIterator[Mapping[ServiceDescriptor, Any]]:
            with self._noted(name):
                if fails:
                    raise RuntimeError("broken")
                yield {LLM: Model(settings.grace_ms)}

        return self._member(name, "llm", LLM, assemble, port, grace_ms=tokens, **more)

    def gateway(self, port: int = 3, lame_duck_ms: int = 0, **more: Any) -> HostedService:
        return self._member("gateway", "gateway", GATEWAY, self._assemble, port, lame_duck_ms=lame_duck_ms, **more)

    async def begin_exchange(self, together: Together, **more: Any) -> asyncio.Task[None]:
        """Bring another front, which has begun to start and waits until it is `going`."""
        self.going.clear()
        bringing = asyncio.create_task(together.bring([self.gateway(lame_duck_ms=1, **more)]))
        await until(lambda: self.done.count("+gateway") == 2)
        return bringing

    def address(self, port: int) -> str:
        return f"127.0.0.1:{self.ports[port]}"

    @asynccontextmanager
    async def _assemble(
        self, settings: ServiceSettings, dialing: tls.Dialing
    ) -> AsyncIterator[Mapping[ServiceDescriptor, Any]]:
        with self._noted("gateway"):
            await self.going.wait()
            async with dialing(None) as self.dial:
                yield {GATEWAY: object()}

    def _member(
        self, name: str, kind: str, descriptor: ServiceDescriptor, assemble: Callable[..., Any], port: int, **more: Any
    ) -> HostedService:
        known = self.__dict__.setdefault("services", {})  # a member that is the same is not started again
        service = known.setdefault(name, Service(kind, ServiceSettings, [descriptor], assemble))
        settings = FrontSettings if kind == "gateway" else ServiceSettings
        return HostedService(name, service, settings(address=self.address(port), blocked_loop_ms=0, **more))

    def _noted(self, name: str) -> _Noted:
        return _Noted(self.done, name)


class _Noted:
    def __init__(self, done: list[str], name: str):
        self._done, self._name = done, name

    def __enter__(self) -> None:
        self._done.append(f"+{self._name}")

    def __exit__(self, *_: object) -> None:
        self._done.append(f"-{self._name}")


@asynccontextmanager
async def brought(*services: HostedService) -> AsyncIterator[Together]:
    """These serve, until they are stopped at the end."""
    async with asyncio.TaskGroup() as group:
        together = Together(group)
        await together.bring(services)
        yield together
        await together.stop()
