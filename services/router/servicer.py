"""The contract of the router: the table of models. Gateways choose from it (`services/runtime/routing.py`)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from hedgerow.router.v1 import router_pb2 as pb
from services.router.table import Observation, Outcome, Table
from services.runtime import routing
from services.runtime.deadline import until_set
from services.runtime.errors import InvalidInput
from services.runtime.rpc.boundary import Call


class RouterServicer:
    """Serves `hedgerow.router.v1.RouterService`."""

    def __init__(
        self,
        table: Table,
        publish_interval_s: float,
        refresh_s: float,
        publish: Callable[[pb.ObserveRequest], None] = lambda request: None,
    ):
        """Watchers get a changed table every `publish_interval_s` at most, and any table every `refresh_s` at least:
        observations that leave the window change it too. `publish` is called with each request that gateways send."""
        self._table, self._publish = table, publish
        self._publish_interval_s = publish_interval_s
        self._refresh_s = refresh_s
        self._changed = asyncio.Event()
        self._drained = asyncio.Event()

    async def WatchTable(self, request: pb.WatchTableRequest, call: Call) -> AsyncIterator[pb.WatchTableResponse]:
        while not self._drained.is_set():
            version = self._table.version
            yield pb.WatchTableResponse(version=version, models=map(_model, self._table.models()))
            await asyncio.sleep(self._publish_interval_s)  # to send changes of this time together
            if version == self._table.version and not self._drained.is_set():
                await self._wait_for_change()

    async def Observe(self, requests: AsyncIterator[pb.ObserveRequest], call: Call) -> pb.ObserveResponse:
        taken = 0

        async def take() -> None:
            nonlocal taken
            async for request in requests:
                taken += self.take(request)
                self._publish(request)

        await until_set(self._drained, take())
        return pb.ObserveResponse(taken=taken)

    async def ListModels(self, request: pb.ListModelsRequest, call: Call) -> pb.ListModelsResponse:
        return pb.ListModelsResponse(models=map(_model, self._table.models()))

    def take(self, request: pb.ObserveRequest, age_s: float = 0.0) -> int:
        """Put observations that are `age_s` seconds old into the table; returns how many it took. Raises
        `InvalidInput`, and has then taken none."""
        taken = self._table.observe([_observation(seen) for seen in request.observations], age_s)
        self._wake()
        return taken

    def drain(self) -> None:
        """End the open streams, which would otherwise delay the shutdown."""
        self._drained.set()
        self._wake()

    async def _wait_for_change(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._refresh_s):
                await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _observation(seen: pb.Observation) -> Observation:
    try:
        outcome = Outcome(seen.outcome)
    except ValueError:
        raise InvalidInput("observations.outcome", "an ObservedOutcome, 1 to 3", seen.outcome) from None
    for name in ("ttft_ms", "total_ms"):
        if not 0 <= (value := getattr(seen, name)) < math.inf:  # also refuses NaN
            raise InvalidInput(f"observations.{name}", "0 or more milliseconds", value)
    return Observation(seen.model, seen.ttft_ms if seen.HasField("ttft_ms") else None, seen.total_ms, outcome)


def _latency(latency: routing.Latency) -> pb.Latency:
    return pb.Latency(p50_ms=latency.p50_ms, p95_ms=latency.p95_ms, p99_ms=latency.p99_ms, samples=latency.samples)


def _model(model: routing.Model) -> pb.Model:
    return pb.Model(
        name=model.name,
        tier=pb.ModelTier.Name(model.tier),
        context_tokens=model.context_tokens,
        prompt_usd_per_mtok=model.prompt_usd_per_mtok,
        completion_usd_per_mtok=model.completion_usd_per_mtok,
        ttft=_latency(model.ttft),
        total=_latency(model.total),
        failure_rate=model.failure_rate,
        sees=model.sees,
        cached_prompt_usd_per_mtok=model.cached_prompt_usd_per_mtok,
        cache_write_usd_per_mtok=model.cache_write_usd_per_mtok,
        identity=model.identity,
    )
