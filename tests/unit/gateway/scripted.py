"""Scripted backends: they do what a test tells them and note what was asked of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from hedgerow.router.v1 import router_pb2
from services.runtime.errors import ServiceError
from services.runtime.routing import Choice, Demand, Latency, Model, Tier, choose, rank


def text(words: str, tokens: int = 1) -> llm_pb2.GenerateResponse:
    return llm_pb2.GenerateResponse(text=words, tokens=tokens)


def finish(words: str = "", reason: int = chat_pb2.FINISH_REASON_STOP) -> llm_pb2.GenerateResponse:
    usage = chat_pb2.Usage(prompt_tokens=7, completion_tokens=3)
    return llm_pb2.GenerateResponse(
        text=words, tokens=int(bool(words)), finish=llm_pb2.Finish(reason=reason, usage=usage)
    )


class ScriptedGeneration:
    """Gives out its script one message at a time; an error in it is raised; `None` waits for ever."""

    def __init__(self, script: Sequence[llm_pb2.GenerateResponse | ServiceError | None]):
        self._script = list(script)
        self.closed = False

    async def begins(self, within_s: float) -> bool:
        return bool(self._script)

    async def take(self) -> list[llm_pb2.GenerateResponse]:
        if not self._script:
            return []
        item = self._script.pop(0)
        if item is None:
            await asyncio.Event().wait()
        if isinstance(item, ServiceError):
            raise item
        return [item]

    def close(self) -> None:
        self.closed = True


class ScriptedLlm:
    def __init__(self, *script: llm_pb2.GenerateResponse | ServiceError | None):
        self._script = script
        self.generations: list[ScriptedGeneration] = []

    def generate(self, request, timeout_s, metadata) -> ScriptedGeneration:
        self.generations.append(ScriptedGeneration(self._script))
        return self.generations[-1]


class ScriptedLookup:
    def __init__(self, outcome: cache_pb2.LookupResponse | ServiceError):
        self._outcome = outcome
        self.cancelled = False

    async def reply(self) -> cache_pb2.LookupResponse:
        if isinstance(self._outcome, ServiceError):
            raise self._outcome
        return self._outcome

    def cancel(self) -> None:
        self.cancelled = True


class ScriptedCache:
    def __init__(self, outcome: cache_pb2.LookupResponse | ServiceError):
        self._outcome = outcome
        self.questions: list[cache_pb2.Question] = []

    def lookup(self, request, timeout_s, metadata) -> ScriptedLookup:
        self.questions.append(request.question)
        return ScriptedLookup(self._outcome)


@dataclass
class ScriptedRoutes:
    """Chooses by the real rules from models that all answer in 10 ms; no table when there are none."""

    names: Sequence[str] = ("small", "large")
    live: bool = True

    def choose(self, demand: Demand) -> Choice | None:
        latency = Latency(10, 10, 10)
        models = [Model(name, Tier.QUALITY, 2048, 0, 0, latency, latency) for name in self.names]
        return choose(rank(models), demand) if models else None


@dataclass
class NotedAftermath:
    stored: list[cache_pb2.StoreRequest] = field(default_factory=list)
    observed: list[router_pb2.Observation] = field(default_factory=list)
    keeps_pending: bool = False

    def store(self, question: bytes, request: cache_pb2.StoreRequest) -> None:
        self.stored.append(request)

    def pending(self, question: bytes) -> cache_pb2.Answer | None:
        return self.stored[-1].answer if self.keeps_pending and self.stored else None

    def observe(self, observation: router_pb2.Observation) -> None:
        self.observed.append(observation)
