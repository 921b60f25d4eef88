"""The results of stages. A stage returns its result to the runner, which keeps it for the stages after it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from services.gateway.generation.shared import Generation
from services.gateway.upstream.cache import Known
from services.runtime.routing import Choice


class Result:
    __slots__ = ()


R = TypeVar("R", bound=Result)


@dataclass(frozen=True, slots=True)
class Done(Result):
    """The answer is complete. `model` wrote its text; `usage` is empty where the model has not reported it.
    `generation`: that of the text; None where no model was asked for it."""

    reason: chat_pb2.FinishReason
    model: str = ""
    usage: chat_pb2.Usage = field(default_factory=chat_pb2.Usage)
    generation: Generation | None = None


@dataclass(frozen=True, slots=True)
class CacheDecision(Result):
    """The cache has no answer. `known`: the invalidations known when it was asked; `stale`: an expired answer, if it
    has one."""

    known: Known
    stale: cache_pb2.Answer | None = None


@dataclass(frozen=True, slots=True)
class Route(Result):
    """The model that the router has chosen. `fast`: the fast model of a cascade; None without a cascade, or where no
    model is smaller than the chosen one."""

    choice: Choice
    fast: Choice | None = None


@dataclass(frozen=True, slots=True)
class Streamed(Result):
    """The streamed answer of a cascade's fast model that did not pass. `finish_reason`: unspecified where it broke
    off."""

    model: str
    finish_reason: chat_pb2.FinishReason
    usage: chat_pb2.Usage


class Prior:
    """The results of the stages that have ended, the last one of each type. Only the runner adds to them."""

    __slots__ = ("_results",)

    def __init__(self) -> None:
        self._results = dict[type[Result], Result]()

    def add(self, result: Result) -> None:
        self._results[type(result)] = result

    def get(self, kind: type[R]) -> R | None:
        """The result of this type; None where no stage has returned one."""
        return self._results.get(kind)  # type: ignore[return-value]

    def __getitem__(self, kind: type[R]) -> R:
        """The result of a stage that every answer has had by now."""
        return self._results[kind]  # type: ignore[return-value]
