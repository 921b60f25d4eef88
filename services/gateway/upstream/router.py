"""The router: calls to it, and its table, kept in the gateway, so that a choice takes microseconds and no call.

The models' own services know the sizes of their contexts best: an engine counts, and a provider's list of models may
say it. `follow_contexts` asks them; the table has the operator's figure.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable
from contextlib import aclosing
from dataclasses import replace
from functools import partial

import grpc

from hedgerow.router.v1 import router_pb2
from services.gateway.upstream.call_errors import translate
from services.gateway.upstream.calls import follow_reachable, reachable, server_stream
from services.gateway.upstream.fleet import Fleet, Pool
from services.gateway.upstream.llm import Llm
from services.runtime.deadline import set_within
from services.runtime.errors import ServiceError, Unavailable
from services.runtime.routing import Choice, Demand, Latency, Model, Tier, choose, rank

_ASKED_S = 2.0  # the longest one may take to say
_AWAY_S, _AGAIN_S = 2.0, 60.0  # to the next time, where one is away, and where all have been asked


class Router:
    def __init__(self, channel: grpc.aio.Channel):
        self._channel = channel
        self._watch = server_stream(channel, router_pb2, "RouterService", "WatchTable")
        self._observe = channel.stream_unary(
            "/hedgerow.router.v1.RouterService/Observe",
            request_serializer=router_pb2.ObserveRequest.SerializeToString,
            response_deserializer=router_pb2.ObserveResponse.FromString,
        )

    def tables(self) -> AsyncGenerator[router_pb2.WatchTableResponse, None]:
        """The table, at once and at each change; waits for the router, ends with `ServiceError` when it goes."""
        return follow_reachable(self._channel, partial(self._watch, router_pb2.WatchTableRequest()), "router")

    async def observe(self, requests: AsyncIterator[router_pb2.ObserveRequest]) -> None:
        """Send observations for as long as the router is there, waiting for it first; raises `ServiceError` when it
        goes."""
        await reachable(self._channel)
        try:
            await self._observe(requests)
        except grpc.aio.AioRpcError as error:
            raise translate(error, "router") from None


class Routes:
    """The last table the router sent, cut to the models whose address is known here.

    A router that goes away leaves its table in force, as with xDS: old figures beat none.
    """

    def __init__(
        self,
        known: Collection[str],
        *,
        expected: bool,
        on_row: Callable[[Model], None] = lambda _: None,
        never: Collection[str] = (),
    ):
        """`expected`: whether there is a router at all. `on_row` is called with each row of each table. `never`:
        models that are known, and chosen for no conversation."""
        self._known, self.expected, self._on_row, self._never = known, expected, on_row, never
        self._models: list[Model] = []
        self._by_name: dict[str, Model] = {}
        self._contexts: dict[str, int] = {}
        self._identities = ""
        self._arrived = asyncio.Event()
        self.least_context = 0  # tokens, of any model that says; 0 while none does
        self.live = False  # whether the router is there to renew it

    def choose(self, demand: Demand, below: Tier | None = None) -> Choice | None:
        """A choice by the router's own rules, of models `below` a tier where one is named, and with vision where that
        is demanded; None where there are none, or no table yet."""
        models = [model for model in self._models if below is None or model.tier < below]
        if demand.pictures:
            models = [model for model in models if model.sees]
        return choose(models, demand) if models else None

    def model(self, name: str) -> Model | None:
        return self._by_name.get(name)

    def learn(self, name: str, context_tokens: int) -> None:
        """The model's own service says how much its context holds, which is stronger than the table."""
        if self._contexts.get(name) != context_tokens:
            self._contexts[name] = context_tokens
            self._take_rows(tuple(self._by_name.values()))

    def context_tokens(self, name: str) -> int:
        """How much a model's context holds; 0: not known."""
        known = self._by_name.get(name)
        return known.context_tokens if known else self._contexts.get(name, 0)

    def identity(self, name: str) -> str:
        """The identity of the model of this name; without a name, of all that might be chosen. Empty: not known."""
        if name:
            return self._by_name[name].identity if name in self._by_name else ""
        return self._identities

    def sees(self, name: str, *, every: bool = False) -> bool:
        """Whether the model of this name takes pictures as they are; without a name, whether one or `every` does."""
        if name:
            return name in self._by_name and self._by_name[name].sees
        seeing = [model.sees for model in self._models]
        return any(seeing) and (all(seeing) or not every)

    async def arrived(self, timeout_s: float) -> None:
        """Wait for the first table, for `timeout_s` at the longest."""
        await set_within(self._arrived, timeout_s)

    async def follow(self, router: Router) -> None:
        """Take in tables for as long as the router is there."""
        try:
            async with aclosing(router.tables()) as tables:
                async for table in tables:
                    self._take(table)
        finally:
            self.live = False

    def _take(self, table: router_pb2.WatchTableResponse) -> None:
        self._take_rows([_model(row) for row in table.models if row.name in self._known])
        self.live = True
        self._arrived.set()

    def _take_rows(self, rows: Iterable[Model]) -> None:
        """Put rows in force, each with the context that its model's own service reports."""
        contexts = self._contexts
        models = [replace(row, context_tokens=contexts.get(row.name, row.context_tokens)) for row in rows]
        self._by_name = {model.name: model for model in models}
        self._models = rank(model for model in models if model.name not in self._never)
        self._identities = " ".join(sorted(f"{each.name}={each.identity}" for each in self._models if each.identity))
        self.least_context = min((each.context_tokens for each in self._models if each.context_tokens), default=0)
        for model in models:
            self._on_row(model)


def _model(row: router_pb2.Model) -> Model:
    cached_usd = row.cached_prompt_usd_per_mtok if row.HasField("cached_prompt_usd_per_mtok") else None
    return Model(
        name=row.name,
        tier=_tier(row.tier),
        context_tokens=row.context_tokens,
        prompt_usd_per_mtok=row.prompt_usd_per_mtok,
        completion_usd_per_mtok=row.completion_usd_per_mtok,
        ttft=_latency(row.ttft),
        total=_latency(row.total),
        failure_rate=row.failure_rate,
        sees=row.sees,
        cached_prompt_usd_per_mtok=cached_usd,
        cache_write_usd_per_mtok=row.cache_write_usd_per_mtok if row.HasField("cache_write_usd_per_mtok") else None,
        identity=row.identity,
    )


def _tier(number: int) -> Tier:
    """The tier; an unknown one of a later version's router counts as none."""
    try:
        return Tier(number)
    except ValueError:
        return Tier.UNSPECIFIED


def _latency(row: router_pb2.Latency) -> Latency:
    return Latency(row.p50_ms, row.p95_ms, row.p99_ms, row.samples)


async def follow_contexts(fleet: Fleet, routes: Routes) -> None:
    """Ask every model's replicas, again and again: a provider may come later, or serve another model. Never returns."""
    while True:
        there = await asyncio.gather(*(_learn(pool, routes) for pool in fleet.pools.values()))
        await asyncio.sleep(_AGAIN_S if all(there) else _AWAY_S)


async def _learn(pool: Pool, routes: Routes) -> bool:
    """Whether all replicas were there to be asked. Of several contexts the smallest counts."""
    replicas = tuple(pool.replicas)
    contexts = [await _ask(replica.llm) for replica in replicas if replica in pool.replicas]  # it may leave meanwhile
    if known := [context for context in contexts if context]:
        routes.learn(pool.model, min(known))
    return None not in contexts


async def _ask(llm: Llm) -> int | None:
    """The context length of a model; None if the service is down."""
    try:
        return await llm.context_tokens(_ASKED_S)
    except Unavailable:
        return None
    except ServiceError:  # of another version, or busy
        return 0
