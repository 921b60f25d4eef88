"""Prefix warm-up: keeps replicas warm, and warms all of them on request.

Each replica reads a prompt separately, because each engine has its own prefix cache, and once for each salt, because an
engine reuses nothing across salts (docs/adr/0013). A replica whose connection was lost may have lost its cache.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal

from prometheus_client import Counter

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from services.gateway.admission.identity import Identity, Tenant
from services.gateway.config import GatewaySettings
from services.gateway.policies.slot import SlotRequest
from services.gateway.prompt.compression import compressed
from services.gateway.settings.prompt import PromptSettings, SystemPromptSettings
from services.gateway.upstream import balance, spending
from services.gateway.upstream.fleet import Fleet, Pool
from services.gateway.upstream.llm import Completion
from services.gateway.upstream.replica import Replica
from services.gateway.upstream.router import Routes
from services.runtime.deadline import Clock, Deadline
from services.runtime.errors import Exhausted, InvalidInput, ServiceError, Unavailable
from services.runtime.routing import Model

ALL = "*"
_VARIANTS = ("default", "simple", "complex")
_QUESTION = "Hello."
_NO_TENANT, _WEIGHT = "", 0.01  # tenant and weight at a limiter: behind a hundred items of any batch
_log = logging.getLogger(__name__)
_LOOK_S = 1.0  # seconds between two checks for new replicas and prompts that are due
_AGAIN_S = 10.0  # after a failure
_WITHIN_S = 10.0  # time limit of a call, the wait for a slot included
_CONNECT_S = 2.0
_WARMED = Counter("hedgerow_warmed", "Prompts that a replica has read for prefix warm-up.", ["model", "outcome"])
_warmed = cache(_WARMED.labels)


@dataclass(frozen=True, slots=True)
class HotPrompt:
    """`name` is for people: `support@3 (default)`."""

    name: str
    text: str


def hot_prompts(
    names: Iterable[str], kept: Mapping[str, SystemPromptSettings], settings: PromptSettings
) -> list[HotPrompt]:
    """All variants of the named prompts among `kept`; `*` names all."""
    wanted = set(names)
    chosen = kept if ALL in wanted else [name for name in kept if name in wanted]
    return [prompt for name in chosen for prompt in _variants(name, kept[name], settings)]


def _variants(name: str, kept: SystemPromptSettings, settings: PromptSettings) -> Iterator[HotPrompt]:
    for variant in _VARIANTS:
        if text := getattr(kept, variant):
            yield HotPrompt(f"{name}@{kept.version} ({variant})", _as_read(text, settings))


def _as_read(text: str, settings: PromptSettings) -> str:
    """The prompt as in requests without prompt options."""
    if settings.diet == "off":
        return text
    return compressed(text, settings.diet_to_bytes, settings.max_examples).text


def probe(text: str, salt: str) -> llm_pb2.GenerateRequest:
    """A request that makes a model read the system prompt `text`, for the tenants with `salt`; without a text, only a
    question."""
    question = chat_pb2.Message(role=chat_pb2.ROLE_USER, content=_QUESTION)
    system = [chat_pb2.Message(role=chat_pb2.ROLE_SYSTEM, content=text)] if text else []
    sampling = chat_pb2.Sampling(max_tokens=1, temperature=0)
    return llm_pb2.GenerateRequest(messages=[*system, question], sampling=sampling, cache_salt=salt)


async def touch(
    pool: Pool, replica: Replica, asked: llm_pb2.GenerateRequest, within_s: float, clock: Clock, model: Model | None
) -> float:
    """Make `replica` answer `asked` within a time limit in seconds, the wait for a slot included, and add the cost at
    the prices of `model`. Returns the seconds to its first message. Raises `ServiceError`; `Shed` if there was no spare
    slot.

    The call has the lowest priority, behind all batches, and bypasses the stack of policies: percentiles, hedges,
    breakers and limits learn from users' requests, and a short answer to a cached prompt would distort them. No
    tenant's quota is charged.
    """
    if not replica.breaker.would_admit():
        raise replica.breaker.refusal()
    deadline = Deadline.after(within_s, clock)
    slot = await pool.limiter.enter(SlotRequest.background(_NO_TENANT, _WEIGHT, deadline))
    replica.in_flight += 1
    try:
        if replica not in pool.replicas:  # it was removed meanwhile
            raise Unavailable(f"{replica.name}: is not in service any more")
        began = clock()
        completion = replica.llm.generate(asked, deadline.remaining(), ())
        try:
            await completion.read()
            first_s = clock() - began
            spending.count(pool.model, model, await _rest(completion))
        finally:
            completion.cancel()
    finally:
        replica.in_flight -= 1
        slot.release(unused=True)
    if pool.reads_prompts:
        replica.prefixes.sent(balance.blocks_of(asked))
    return first_s


async def _rest(completion: Completion) -> llm_pb2.Finish:
    while completion.finish is None:
        await completion.read()
    await completion.ended()
    return completion.finish


@dataclass(frozen=True, slots=True)
class WarmupStep:
    """The warm-up of one replica. `before_s` and `after_s`: seconds to the first text of a first and a second call.
    `problem`: why it is not warm."""

    kind: Literal["connection", "engine", "prompt"]
    replica: str
    prompt: str = ""
    took_s: float = 0.0
    before_s: float | None = None
    after_s: float | None = None
    problem: str = ""


@dataclass(slots=True)
class _WarmReplica:
    """The state of a replica since its last new connection: when each prompt is due again, by salt and name."""

    connections: int
    due: dict[tuple[str, str], float] = field(default_factory=dict)


class PrefixWarmup:
    """The warm-up of all models of a fleet. `run` keeps the prompts of the settings warm."""

    def __init__(
        self, settings: GatewaySettings, fleet: Fleet, routes: Routes, identity: Identity, clock: Clock = time.monotonic
    ):
        self._settings, self._fleet, self._routes, self._identity = settings, fleet, routes, identity
        self._clock, self._busy = clock, False
        self._known: dict[str, dict[Replica, _WarmReplica]] = {pool.model: {} for pool in fleet.chat}
        self._prompts = self._named(settings.warm.prompts)

    async def run(self) -> None:
        """Run until cancelled. Each model has its own task, so that a busy one does not delay the others."""
        if not self._prompts:
            return
        async with asyncio.TaskGroup() as group:
            for pool in self._fleet.chat:
                group.create_task(self._keep(pool))

    async def now(self, tenant: Tenant, names: Sequence[str]) -> AsyncGenerator[WarmupStep, None]:
        """Warm all replicas for a tenant, one step after the other. Raises `InvalidInput` for an unknown prompt, and
        `Exhausted` while another warm-up runs."""
        kept = self._settings.system_prompts
        if unknown := next((name for name in names if name != ALL and name not in kept), ""):
            raise InvalidInput("system_prompts", f"one of {', '.join(kept) or 'none'}", unknown)
        if self._busy:
            raise Exhausted("warm: one call at a time, got another", retry_delay_s=_LOOK_S)
        self._busy, prompts = True, self._named(names) if names else self._prompts
        try:
            for pool in self._fleet.chat:
                if not pool.replicas:
                    yield WarmupStep("connection", pool.model, problem=pool.refusal().message)
                for replica in list(pool.replicas):
                    of_model = prompts if self._reads(pool.model) else ()
                    async with aclosing(self._steps(pool, replica, tenant, of_model)) as steps:
                        async for step in steps:
                            yield step
        finally:
            self._busy = False

    async def _steps(
        self, pool: Pool, replica: Replica, tenant: Tenant, prompts: Sequence[HotPrompt]
    ) -> AsyncGenerator[WarmupStep, None]:
        """The steps of one replica, until one of them fails."""
        began, problem = self._clock(), ""
        try:
            await replica.llm.connect(_CONNECT_S)
        except ServiceError as error:
            problem = error.message
        yield WarmupStep("connection", replica.name, took_s=self._clock() - began, problem=problem)
        if problem:
            return
        yield (step := await self._twice(WarmupStep("engine", replica.name), pool, replica, tenant, ""))
        if step.problem:
            return
        for prompt in prompts:
            due = self._due(pool, replica)
            step = await self._twice(
                WarmupStep("prompt", replica.name, prompt.name), pool, replica, tenant, prompt.text
            )
            if not step.problem:
                due[tenant.prefix_salt, prompt.name] = self._again()
            yield step

    async def _twice(self, step: WarmupStep, pool: Pool, replica: Replica, tenant: Tenant, text: str) -> WarmupStep:
        """The step with the times of a first call and of a second one."""
        asked, began, before_s = probe(text, tenant.prefix_salt), self._clock(), None
        try:
            before_s = await self._touch(pool, replica, asked)
            after_s = await self._touch(pool, replica, asked)
        except ServiceError as error:
            return replace(step, took_s=self._clock() - began, before_s=before_s, problem=error.message)
        return replace(step, took_s=self._clock() - began, before_s=before_s, after_s=after_s)

    async def _keep(self, pool: Pool) -> None:
        """Make every replica read the prompts that are due. None waits for another one."""
        reading: dict[Replica, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                if self._reads(pool.model):
                    known = self._known[pool.model]
                    for gone in [replica for replica in known if replica not in pool.replicas]:
                        del known[gone]
                    reading = {replica: task for replica, task in reading.items() if not task.done()}
                    for replica in pool.replicas:
                        if replica not in reading:
                            reading[replica] = group.create_task(self._warm_replica(pool, replica))
                await asyncio.sleep(_LOOK_S)

    async def _warm_replica(self, pool: Pool, replica: Replica) -> None:
        for tenant in self._identity.warmed():
            for prompt in self._prompts:
                await self._read(pool, replica, tenant, prompt)

    async def _read(self, pool: Pool, replica: Replica, tenant: Tenant, prompt: HotPrompt) -> None:
        """Make a replica read one prompt, if it is due."""
        due, what = self._due(pool, replica), (tenant.prefix_salt, prompt.name)
        if self._clock() < due.get(what, float("-inf")) or not replica.breaker.would_admit():
            return
        asked = probe(prompt.text, tenant.prefix_salt)
        try:
            await self._touch(pool, replica, asked)
        except ServiceError as error:
            due[what] = self._clock() + _AGAIN_S
            _warmed(pool.model, "failed").inc()
            _log.info("%s has not read %s: %s", replica.name, prompt.name, error.outline)
            return
        due[what] = self._again()
        _warmed(pool.model, "ok").inc()

    async def _touch(self, pool: Pool, replica: Replica, asked: llm_pb2.GenerateRequest) -> float:
        return await touch(pool, replica, asked, _WITHIN_S, self._clock, self._routes.model(pool.model))

    def _again(self) -> float:
        """When a prompt that was just read is due again."""
        return self._clock() + (self._settings.warm.every_ms / 1000 or float("inf"))

    def _due(self, pool: Pool, replica: Replica) -> dict[tuple[str, str], float]:
        """When a replica is due to read each prompt again; empty if it may have read none. Callers keep the returned
        state over a call: by its end, another process may have replaced the replica."""
        known, connections = self._known[pool.model], replica.breaker.connections
        if replica not in known or known[replica].connections != connections:
            known[replica] = _WarmReplica(connections)
        return known[replica].due

    def _reads(self, model: str) -> bool:
        """Whether this model is warmed up. With a router, its tier is known once there is a table."""
        row = self._routes.model(model)
        return row.tier.name.lower() in self._settings.warm.tiers if row else not self._routes.expected

    def _named(self, names: Sequence[str]) -> Sequence[HotPrompt]:
        return hot_prompts(names, self._settings.system_prompts, self._settings.prompt)
