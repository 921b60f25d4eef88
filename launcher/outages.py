"""Reports models whose providers fail or cannot be reached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc

from hedgerow import Tls
from hedgerow.channel import open_channel
from hedgerow.llm.v1 import llm_pb2, llm_pb2_grpc
from launcher.mesh import Mesh

_EVERY_S, _TIMEOUT_S = 5.0, 2.0
_CALM_LOOKS = 2  # without a failure end an outage, so that a provider that fails now and then is one line and no flood


@dataclass(frozen=True)
class ModelState:
    """A model; if it fails, the provider's `url` and the `reason`."""

    name: str
    url: str = ""
    reason: str = ""

    @property
    def problem(self) -> str:
        """The problem as text; empty: none."""
        return f"model {self.name} at {self.url}: {self.reason}" if self.reason else ""


async def model_state(address: str, timeout_s: float = _TIMEOUT_S, tls: Tls | None = None) -> ModelState | None:
    """The state of the model of the llm service at `address`; None: unknown."""
    async with open_channel(address, tls=tls) as channel:
        stub: Any = llm_pb2_grpc.LLMServiceStub(channel)  # type: ignore[no-untyped-call]
        try:
            model = await stub.GetModel(llm_pb2.GetModelRequest(), timeout=timeout_s)
        except grpc.aio.AioRpcError:
            return None
    return ModelState(model.name, model.outage.url, model.outage.reason)


class Watch:
    """Reports when a model begins to fail, and when it answers again."""

    def __init__(self, report: Callable[[str], None]):
        self._report = report
        self._failing: dict[str, ModelState] = {}  # by the service's name
        self._calm: dict[str, int] = {}  # looks since the last failure

    def known(self, states: Mapping[str, ModelState | None]) -> None:
        """Set the states at the start, which have been shown."""
        self._failing = {service: state for service, state in states.items() if state and state.problem}

    def look(self, states: Mapping[str, ModelState | None]) -> None:
        """Read the current states. A service without an answer keeps its state."""
        for service in self._failing.keys() - states.keys():  # it is not a part of the mesh any more
            del self._failing[service]
        for service, state in states.items():
            if state and state.problem:
                self._calm[service] = 0
                if service not in self._failing:
                    self._report(f"WARNING {state.problem}")
                self._failing[service] = state
            elif state and service in self._failing:
                self._calm[service] = self._calm.get(service, 0) + 1
                if self._calm[service] >= _CALM_LOOKS:
                    failed = self._failing.pop(service)
                    self._report(f"model {failed.name} at {failed.url} answers again")


async def follow(mesh: Mesh, report: Callable[[str], None]) -> None:
    """Until cancelled, report models of the mesh that begin to fail and that answer again."""
    watch = Watch(report)
    watch.known(await _states(mesh))
    while True:
        await asyncio.sleep(_EVERY_S)
        watch.look(await _states(mesh))


async def _states(mesh: Mesh) -> dict[str, ModelState | None]:
    models = [spec for each in mesh.services for spec in each.spec.services if spec.module == "services.llm"]
    states = await asyncio.gather(*(model_state(spec.address, tls=spec.tls) for spec in models))
    return {spec.name: state for spec, state in zip(models, states, strict=True)}
