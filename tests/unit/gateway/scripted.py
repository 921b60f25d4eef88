"""Scripted backends: they follow a script and record their requests."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import ModuleType

import pytest

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from hedgerow.router.v1 import router_pb2
from services.gateway.answer.stages.cache.write_behind import MayStore
from services.gateway.policies.work_shares import WorkShares
from services.gateway.upstream.cache import Known
from services.gateway.upstream.fleet import Fleet, make_fleet
from services.runtime.aside import LARGE_BYTES
from services.runtime.deadline import Clock
from services.runtime.errors import ServiceError, TooLate, Unavailable
from services.runtime.routing import Choice, Demand, Latency, Model, Tier, choose, rank
from tests.clock import loop_clock
from tests.unit.gateway.shared_settings import gateway_settings


def text(words: str, tokens: int = 1) -> llm_pb2.GenerateResponse:
    return llm_pb2.GenerateResponse(text=words, tokens=tokens)


def finish(words: str = "", reason: int = chat_pb2.FINISH_REASON_STOP) -> llm_pb2.GenerateResponse:
    usage = chat_pb2.Usage(prompt_tokens=7, completion_tokens=3)
    return llm_pb2.GenerateResponse(
        text=words, tokens=int(bool(words)), finish=llm_pb2.Finish(reason=reason, usage=usage)
    )


Step = llm_pb2.GenerateResponse | ServiceError | float | None


class ScriptedCompletion:
    """Plays its script: a message comes, an error ends it, a number is a pause in seconds, `None` waits for ever. As a
    real call it ends at its deadline. `messages`: those that were read."""

    def __init__(self, script: Sequence[Step], timeout_s: float):
        self.messages: list[llm_pb2.GenerateResponse] = []
        self.finish: llm_pb2.Finish | None = None
        self._script, self._problem = iter(script), None
        self._ends_at = loop_clock() + timeout_s
        self._cancelled = asyncio.Event()

    @property
    def reported_finish(self) -> llm_pb2.Finish | None:
        return self.finish

    @property
    def closed(self) -> bool:
        return self._cancelled.is_set()

    async def read(self) -> llm_pb2.GenerateResponse:
        try:
            async with asyncio.timeout_at(self._ends_at if self._ends_at < float("inf") else None):
                message = await self._next()
        except TimeoutError:
            raise TooLate("late") from None
        self.finish = message.finish if message.HasField("finish") else None
        self.messages.append(message)
        return message

    def cancel(self, problem: ServiceError | None = None) -> None:
        self._problem = problem
        self._cancelled.set()

    async def ended(self) -> None:
        pass

    async def _next(self) -> llm_pb2.GenerateResponse:
        for step in self._script:
            self._check_open()
            if isinstance(step, ServiceError):
                raise step
            if isinstance(step, llm_pb2.GenerateResponse):
                await asyncio.sleep(0)
                return step
            with suppress(TimeoutError):
                await asyncio.wait_for(self._cancelled.wait(), step)
            self._check_open()
        raise Unavailable("ended without a finish reason")

    def _check_open(self) -> None:
        if self.closed:
            raise self._problem or Unavailable("the connection was closed")


class ScriptedLlm:
    """Plays the same script for each call, or `scripts` one after the other, the last again and again."""

    def __init__(self, *script: Step, scripts: Sequence[Sequence[Step]] = ()):
        self._scripts = list(scripts) or [script]
        self.calls: list[ScriptedCompletion] = []
        self.requests: list[llm_pb2.GenerateRequest] = []
        self.counts: list[Sequence[chat_pb2.Message]] = []  # conversations whose tokens were counted
        self.uncounted: ServiceError | None = None  # why nothing is counted
        self.unconnected: ServiceError | None = None  # why there is no connection

    def generate(self, request, timeout_s, metadata) -> ScriptedCompletion:
        script = self._scripts[min(len(self.calls), len(self._scripts) - 1)]
        self.requests.append(request)
        self.calls.append(ScriptedCompletion(script, timeout_s))
        return self.calls[-1]

    async def connect(self, within_s) -> None:
        await asyncio.sleep(0)
        if self.unconnected:
            raise self.unconnected

    async def count_tokens(self, messages, timeout_s, metadata, tools=()) -> int:
        """A token for each word, and three for each message."""
        self.counts.append(list(messages))
        await asyncio.sleep(0)
        if self.uncounted:
            raise self.uncounted
        return words(messages)


def fleet(clock: Clock = time.monotonic, settings: Mapping[str, object] | None = None, **llms: object) -> Fleet:
    """Pools of scripted llms: one, or a list of replicas, by model. No jitter before a retry, and no retries but those
    that requests earn: the ones of the start are spent."""
    running = started_fleet(clock, settings, **llms)
    while running.retry.spend():
        pass
    return running


def started_fleet(clock: Clock = time.monotonic, settings: Mapping[str, object] | None = None, **llms: object) -> Fleet:
    """The same, with the retries of its start."""
    replicas = {
        model: [(f"{model}-{number}", llm) for number, llm in enumerate(given if isinstance(given, list) else [given])]
        for model, given in llms.items()
    }
    retry = {"base_ms": 0, **(settings or {}).get("retry", {})}
    merged = {"llm_addresses": {"unused": "unused"}, **(settings or {}), "retry": retry}
    return make_fleet(gateway_settings(**merged), replicas, WorkShares(lambda: 0.0, 1), clock, InOrder())


def large_asides(monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> list[bool]:
    """Whether each work that a module does `aside` is large. It is done at once."""
    large = list[bool]()

    async def aside(tenant: str, size: int, work: Callable[[], object], within_s: float | None = None) -> object:
        large.append(size > LARGE_BYTES)
        return work()

    monkeypatch.setattr(module, "aside", aside)
    return large


class InOrder(random.Random):
    """Randomness with which the balancer picks the first of equally busy replicas."""

    def random(self) -> float:
        return 0.0


def words(messages: Sequence[chat_pb2.Message]) -> int:
    """The tokens of a conversation, as `ScriptedLlm` counts them."""
    return sum(3 + len(message.content.split()) for message in messages)


class ScriptedCache:
    def __init__(self, outcome: cache_pb2.LookupResponse | ServiceError):
        self.outcome = outcome
        self.questions: list[cache_pb2.Question] = []
        self.similarities: list[float | None] = []  # the least that each lookup accepts
        self.max_wrong: list[float | None] = []  # what each lookup allows for
        self.stale: list[int] = []  # for how long the time of what it finds may be over, in milliseconds

    async def lookup(self, request, timeout_s, metadata) -> cache_pb2.LookupResponse:
        self.questions.append(request.question)
        self.similarities.append(request.min_similarity if request.HasField("min_similarity") else None)
        self.max_wrong.append(request.max_wrong if request.HasField("max_wrong") else None)
        self.stale.append(request.stale_within_ms)
        if isinstance(self.outcome, ServiceError):
            raise self.outcome
        return self.outcome


def _model(name: str) -> Model:
    """A million prompt tokens cost a dollar, a million completion tokens two. Those called `quick` and `slow` are so,
    and no better than that."""
    latency = Latency(*3 * ({"quick": 5, "slow": 20}.get(name, 10),))
    return Model(name, Tier.FAST if name in ("quick", "slow") else Tier.QUALITY, 2048, 1, 2, latency, latency)


@dataclass
class ScriptedRoutes:
    """Chooses by the real rules from models that all answer in 10 ms; no table when there are none."""

    names: Sequence[str] = ("small", "large")
    live: bool = True
    expected: bool = True
    least_context: int = 2_048
    identities: Mapping[str, str] = field(default_factory=dict)  # by model; of all: by ""
    seeing: Sequence[str] = ()  # with vision

    def choose(self, demand: Demand, below: Tier | None = None) -> Choice | None:
        names = [name for name in self.names if name in self.seeing or not demand.pictures]
        models = [model for model in map(_model, names) if below is None or model.tier < below]
        return choose(rank(models), demand) if models else None

    def sees(self, name: str) -> bool:
        return name in self.seeing if name else bool(self.seeing)

    def identity(self, name: str) -> str:
        return self.identities.get(name, "")

    def model(self, name: str) -> Model | None:
        return _model(name) if name in self.names else None


@dataclass
class NotedWriteBehind:
    stored: list[cache_pb2.StoreRequest] = field(default_factory=list)
    known: list[Known] = field(default_factory=list)
    observed: list[router_pb2.Observation] = field(default_factory=list)
    checks: list[MayStore | None] = field(default_factory=list)
    keeps_pending: bool = False

    def store(
        self, question: bytes, request: cache_pb2.StoreRequest, known: Known, may_store: MayStore | None = None
    ) -> None:
        self.stored.append(request)
        self.known.append(known)
        self.checks.append(may_store)

    def pending(self, tenant: str, question: bytes) -> cache_pb2.Answer | None:
        return self.stored[-1].answer if self.keeps_pending and self.stored else None

    def observe(self, observation: router_pb2.Observation) -> None:
        self.observed.append(observation)
