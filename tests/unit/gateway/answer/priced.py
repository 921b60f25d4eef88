"""Models with prices, what their providers bill, and what the metrics count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest
from prometheus_client import REGISTRY

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from launcher.meshfile.provider_models import find
from services.runtime.routing import Choice, Demand, Model, Tier, choose
from tests.unit.gateway.answer.scene import MISS, Scene
from tests.unit.gateway.scripted import ScriptedCache, ScriptedLlm, ScriptedRoutes, text

MICRODOLLAR = 1e-6


def public(url: str, model: str) -> dict[str, float]:
    """The prices of a mesh file that names a provider's model without prices: the public ones."""
    found = find(url, model)
    prices = {"prompt": found.input, "completion": found.output}
    prices |= {"cached": found.cached_input, "cache_write": found.cache_write}
    return {kind: price for kind, price in prices.items() if price is not None}


PRICES: Mapping[str, Mapping[str, float]] = {  # of a million tokens; `large` has none of its own for a provider's cache
    "small": {"prompt": 100, "completion": 200, "cached": 10, "cache_write": 125},
    "large": {"prompt": 1_000, "completion": 3_000},
    "claude": public("https://api.anthropic.com/v1", "claude-sonnet-4-5"),
    "gpt": public("https://api.openai.com/v1", "gpt-5-mini"),
}


@dataclass(frozen=True)
class Used:
    """The usage that a provider reports for one call."""

    model: str
    prompt: int
    completion: int
    cached: int = 0
    written: int = 0

    @property
    def usd(self) -> float:
        prices = PRICES[self.model]
        plain = (self.prompt - self.cached - self.written) * prices["prompt"] + self.completion * prices["completion"]
        cached = self.cached * prices.get("cached", prices["prompt"])
        return (plain + cached + self.written * prices.get("cache_write", prices["prompt"])) / 1e6

    @property
    def tokens(self) -> int:
        return self.prompt + self.completion


@dataclass
class PricedRoutes(ScriptedRoutes):
    def choose(self, demand: Demand, below: Tier | None = None) -> Choice | None:
        rows = [row for name in self.names if (row := self.model(name)) and (below is None or row.tier < below)]
        return choose(rows, demand) if rows else None

    def model(self, name: str) -> Model | None:
        prices = PRICES[name]
        return replace(
            _tiered(name, super().model(name)),
            prompt_usd_per_mtok=prices["prompt"],
            completion_usd_per_mtok=prices["completion"],
            cached_prompt_usd_per_mtok=prices.get("cached"),
            cache_write_usd_per_mtok=prices.get("cache_write"),
        )


def _tiered(name: str, row: Model | None) -> Model:
    assert row
    return replace(row, tier=Tier.FAST if name == "small" else Tier.QUALITY)


def scene(policies: Mapping[str, object] | None = None, **llms: object) -> Scene:
    return Scene(ScriptedCache(MISS), PricedRoutes(tuple(llms)), policies=policies, **llms)  # type: ignore[arg-type]


def ends(
    prompt: int = 2_000, completion: int = 100, reports_cache: bool = True, **of_cache: int
) -> llm_pb2.GenerateResponse:
    """The last message of a provider with its usage. `reports_cache`: whether callers may know of its cache."""
    read, written = of_cache.get("read", 0), of_cache.get("written", 0)
    usage = chat_pb2.Usage(prompt_tokens=prompt, completion_tokens=completion, reasoning_tokens=completion // 2)
    if reports_cache:
        usage.cached_prompt_tokens, usage.cache_write_tokens = read, written
    finish = llm_pb2.Finish(
        reason=chat_pb2.FINISH_REASON_STOP, usage=usage, billed_cached_tokens=read, billed_cache_write_tokens=written
    )
    return llm_pb2.GenerateResponse(text="ris.", tokens=1, finish=finish)


def says(*script: object) -> ScriptedLlm:
    return ScriptedLlm(*(script or (text("Pa"), ends())))


class Counted:
    """The metrics since this was made."""

    def __init__(self) -> None:
        self._before = self._now()

    def __getitem__(self, kind: str) -> float:
        return self._now()[kind] - self._before[kind]

    def _now(self) -> dict[str, float]:
        counted = {"usd": 0.0, "prompt": 0.0, "completion": 0.0}
        for metric in REGISTRY.restricted_registry(["hedgerow_tokens_total", "hedgerow_cost_usd_total"]).collect():
            for sample in metric.samples:
                kind = sample.labels.get("kind", "usd")
                if sample.labels["model"] in PRICES and kind in counted:
                    counted[kind] += sample.value
        return counted

    def assert_is(self, *used: Used) -> None:
        assert self["usd"] == pytest.approx(sum(each.usd for each in used), abs=MICRODOLLAR / 1_000)
        assert self["prompt"] == sum(each.prompt for each in used)
        assert self["completion"] == sum(each.completion for each in used)
