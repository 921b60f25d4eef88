"""The three arms of the comparison, each with processes of its own: nothing one arm does changes another's state.

`before` asks the provider's two replicas in turn, as an application without a mesh would. `hedging_only` goes through a
gateway with the cache left out. `after` goes through a gateway with the real cache and every policy. The replicas of
all arms draw from the same seeds.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.jagged.latency import ARTICLES, ARTICLES_TIMEOUT_S, ARTICLES_TOKENS
from bench.jagged.questions import to_gateway, to_llm
from bench.load import Ask, ask_gateway, ask_llm
from hedgerow.channel import open_channel
from launcher.mesh import Mesh
from launcher.processes import ServiceSpec, free_ports

MODEL = "jagged"
PROMPT_USD_PER_MTOK, COMPLETION_USD_PER_MTOK = 0.25, 0.50
REPLICAS = 2
# Settings that depend on the provider; all others are the gateway's defaults, the cap of 5% on extra calls among them.
# Blocks of one arm are a minute apart, and what one block taught holds for the next.
HEDGE = {"window_s": 300}
LIMIT = {"initial": 100}  # the provider has no limit to find; a start below the load would queue at first
_CONNECTIONS = 2  # of the generator to a gateway
_GRACE_S = 0.5  # a gateway ends an answer at its budget; the call's own deadline is only there should it not


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to ask the same provider."""

    name: str
    ask: Ask
    request: Callable[[str], bytes]  # from a question's text
    metrics: Sequence[str]  # where the replicas' own counts are


@asynccontextmanager
async def open_arms(folder: Path, seed: int) -> AsyncIterator[list[Arm]]:
    """All arms, serving: `before`, `hedging_only`, `after`."""
    names = ("before", "hedging_only", "after")
    replicas = {name: [_Replica(name, number, seed) for number in range(REPLICAS)] for name in names}
    router, cache, *fronts = (f"127.0.0.1:{port}" for port in free_ports(4))
    gateways = dict(zip(names[1:], fronts, strict=True))
    specs = [replica.spec for each in replicas.values() for replica in each]
    specs += [_router(router), _cache(cache, folder)]
    specs += [_gateway(name, gateways[name], router, cache, replicas[name]) for name in gateways]
    async with Mesh(specs, folder), AsyncExitStack() as stack:
        arms = []
        for name in names:
            metrics = [replica.metrics for replica in replicas[name]]
            if name in gateways:
                channels = [await stack.enter_async_context(open_channel(gateways[name])) for _ in range(_CONNECTIONS)]
                budget_ms, bypass = round(ARTICLES_TIMEOUT_S * 1000), name == "hedging_only"
                ask: Ask = ask_gateway(channels, ARTICLES_TIMEOUT_S + _GRACE_S)
                arms.append(Arm(name, ask, to_gateway(budget_ms, bypass=bypass), metrics))
            else:
                targets = [replica.address for replica in replicas[name]]
                channels = [await stack.enter_async_context(open_channel(target)) for target in targets]
                arms.append(Arm(name, ask_llm(channels, ARTICLES_TIMEOUT_S), to_llm, metrics))
        yield arms


class _Replica:
    def __init__(self, arm: str, number: int, seed: int):
        self.address, self.metrics = (f"127.0.0.1:{port}" for port in free_ports(2))
        settings = {
            "ADDRESS": self.address,
            "METRICS_ADDRESS": self.metrics,
            "PROFILE": ARTICLES.to_json(),
            "TOKENS": str(ARTICLES_TOKENS),
            "SEED": str(seed * REPLICAS + number),
        }
        self.spec = _spec(f"simulated-{arm}-{number}", "bench.simulated_llm", "SIMULATED_LLM", settings)


def _router(address: str) -> ServiceSpec:
    model = {
        "name": MODEL,
        "tier": "fast",
        "context_tokens": 100_000,
        "prompt_usd_per_mtok": PROMPT_USD_PER_MTOK,
        "completion_usd_per_mtok": COMPLETION_USD_PER_MTOK,
    }
    return _spec("router", "services.router", "ROUTER", {"ADDRESS": address, "MODELS": json.dumps([model])})


def _cache(address: str, folder: Path) -> ServiceSpec:
    return _spec("cache", "services.cache", "CACHE", {"ADDRESS": address, "DATABASE": str(folder / "cache.db")})


def _gateway(name: str, address: str, router: str, cache: str, replicas: Sequence[_Replica]) -> ServiceSpec:
    settings: dict[str, Any] = {
        "ADDRESS": address,
        "ROUTER_ADDRESS": router,
        "CACHE_ADDRESS": cache,
        "LLM_ADDRESSES": json.dumps({MODEL: [replica.address for replica in replicas]}),
        "HEDGE": json.dumps(HEDGE),
        "LIMIT": json.dumps(LIMIT),
    }
    return _spec(f"gateway-{name}", "services.gateway", "GATEWAY", settings)


def _spec(name: str, module: str, prefix: str, settings: Mapping[str, str]) -> ServiceSpec:
    environment = {f"HEDGEROW_{prefix}_{key}": value for key, value in settings.items()}
    return ServiceSpec(name, module, settings["ADDRESS"], environment)
