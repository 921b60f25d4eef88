"""Prompts that begin alike, sent where their beginning is, against each replica in turn. On real engines.

Two replicas of the demo model serve prompts with one of 8 system prompts each. A replica's key-value cache holds about
five of them, as production caches hold a part of what is asked: a replica that sees all eight forgets each before it
comes again; one that sees four keeps them. Each phase has system prompts of its own, so that no policy finds what the
other left behind, and the policies take turns.
"""

from __future__ import annotations

import random
import time
from functools import partial
from itertools import chain
from typing import Any

from bench.asking import BUDGET_MS, in_turns
from bench.cluster import Cluster
from bench.stats import percentiles
from hedgerow import AsyncClient, Final, TextDelta, Usage
from tests.models import MODELS

POLICIES = {"round_robin": "round_robin", "prefix_aware": "prefix"}
PREFIXES, REQUESTS, PHASES = 8, 64, 3  # requests and phases of each policy
_WARM_UP = 2 * PREFIXES  # requests of a phase that are not counted: the first of each prefix must be read by a replica
_LINES = 140  # of a system prompt, about 1,700 tokens
_KV_BLOCKS = 72  # of 128 tokens: five system prompts and what is being answered
_MODEL = "demo-llm"
_CITIES = ("Paris", "Rome", "Madrid", "Berlin", "Vienna", "Lisbon", "Athens", "Dublin", "Oslo", "Cairo")
_ENGINE: dict[str, Any] = {
    "model": str(MODELS / _MODEL),
    "max_model_len": 2048,
    "max_num_seqs": 4,
    "enforce_eager": True,
    "num_gpu_blocks_override": _KV_BLOCKS,
}
Seen = tuple[float, Usage]  # milliseconds to the first text


async def measure(cluster: Cluster) -> dict[str, dict[str, float]]:
    """First texts and the share of cached tokens of each policy."""
    own = {f"vllm__{name}": value for name, value in _ENGINE.items()}
    llms = [await cluster.start(f"llm-{number}", "services.llm", model_name=_MODEL, **own) for number in (1, 2)]
    at = {_MODEL: [llm.spec.address for llm in llms]}
    ways = {}
    for name, policy in POLICIES.items():
        front = await cluster.gateway(f"gateway-{name}", llm_addresses=at, balance=policy, hedge__mode="off")
        client = await cluster.stack.enter_async_context(AsyncClient(front.spec.address))
        ways[name] = partial(_phase, client=client, policy=name)
    cluster.progress(f"{PHASES} phases of {REQUESTS} requests by each of {', '.join(ways)}")
    return {name: _summary([*chain(*phases)]) for name, phases in (await in_turns(ways, PHASES)).items()}


async def _phase(number: int, client: AsyncClient, policy: str) -> list[Seen]:
    rng = random.Random(f"{policy} {number}")
    systems = [_system(rng, f"{policy} {number} {prefix}") for prefix in range(PREFIXES)]
    asked = [*(count % PREFIXES for count in range(_WARM_UP)), *rng.choices(range(PREFIXES), k=REQUESTS)]
    sums = (f"What is {rng.randint(1, 20)} plus {rng.randint(1, 20)}?" for _ in asked)
    return [await _ask(client, systems[prefix], each) for prefix, each in zip(asked, sums, strict=True)][_WARM_UP:]


async def _ask(client: AsyncClient, system: str, asked: str) -> Seen:
    began, first_ms, last = time.perf_counter(), 0.0, None
    async with client.stream(asked, system=system, max_tokens=4, temperature=0, budget_ms=BUDGET_MS) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                first_ms = first_ms or (time.perf_counter() - began) * 1000
            last = event
    assert isinstance(last, Final)  # every answer ends with one
    return first_ms, last.answer.usage


def _system(rng: random.Random, title: str) -> str:
    """A system prompt that begins like no other."""
    minutes = (
        f"- {rng.choice(_CITIES)} is {rng.randint(2, 900)} minutes from {rng.choice(_CITIES)}." for _ in range(_LINES)
    )
    return "\n".join([f"Context {title}:", *minutes])


def _summary(seen: list[Seen]) -> dict[str, float]:
    firsts_ms, prompt_tokens = [first_ms for first_ms, _ in seen], sum(usage.prompt_tokens for _, usage in seen)
    return {
        **{f"ttft_{name}_ms": value for name, value in percentiles(firsts_ms, 1).items()},
        "ttft_mean_ms": round(sum(firsts_ms) / len(seen), 1),
        "cached_tokens_share": round(sum(usage.cached_prompt_tokens for _, usage in seen) / prompt_tokens, 3),
        "prompt_tokens": round(prompt_tokens / len(seen)),
        "requests": len(seen),
    }
