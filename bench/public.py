"""Latency and throughput that the mesh adds to vLLM with a public model: first token, tokens/s of 1 and 16 callers.

SmolLM2-135M-Instruct of the catalogue (`hedgerow models pull smollm2-135m`), plain settings, in bfloat16. The mesh is a
gateway, a router and an llm service, asked by gRPC with the cache left out; beside it stands vLLM's bare `AsyncLLM`
(`bench.raw_vllm`). Both are loaded all the time and asked in turns, with prompts that neither has seen.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from statistics import median

from bench import raw_vllm
from bench.asking import gateway, in_turns, question, timed
from bench.cluster import Cluster, Progress, clustered
from bench.raw_vllm import Ask, Sample
from hedgerow.chat.v1 import chat_pb2
from launcher.catalog import store

MODEL = "smollm2-135m"
ANSWERS = 20  # of each way by one caller
TOKENS = 64  # of each answer, whatever the model would rather write
CALLERS, ROUNDS = 16, 5
SETTLE_S = 0.3
_BUDGET_MS = 120_000


async def run(progress: Progress) -> dict[str, object]:
    """Start what is needed, measure, stop it. About three minutes."""
    async with clustered(progress) as cluster:
        model = str(store.path(MODEL))
        ways = {"raw": await raw_vllm.loaded(cluster, model=model), "mesh": await _mesh(cluster, model)}
        progress(f"{ANSWERS} answers on each of {', '.join(ways)}, one at a time, in turns")
        alone = await in_turns({name: partial(_alone, ask=ask) for name, ask in ways.items()}, ANSWERS, 2)
        progress(f"{ROUNDS} rounds of {CALLERS} callers on each, in turns")
        rates = await in_turns({name: partial(_together, ask=ask) for name, ask in ways.items()}, ROUNDS, 1)
    pairs = list(zip(alone["mesh"], alone["raw"], strict=True))
    both = zip(rates["mesh"], rates["raw"], strict=True)
    return {
        **{name: _row(alone[name], rates[name]) for name in ways},
        "first_added_ms": round(median(mesh.first_s - raw.first_s for mesh, raw in pairs) * 1000, 2),
        "over_raw": round(median(mesh.tokens_per_s / raw.tokens_per_s for mesh, raw in pairs), 3),
        f"over_raw_of_{CALLERS}": round(median(mesh / raw for mesh, raw in both), 3),
        "samples": {"answers": ANSWERS, "tokens": TOKENS, "rounds": ROUNDS},
    }


async def _mesh(cluster: Cluster, model: str) -> Ask:
    llm = await cluster.start("llm", "services.llm", model_name=MODEL, vllm__model=model)
    router = await cluster.router(name=MODEL, context_tokens=8192)
    front = await cluster.gateway(
        llm_addresses={MODEL: llm.spec.address}, router_address=router.spec.address, default_budget_ms=_BUDGET_MS
    )
    by_grpc = gateway(await cluster.channel(front))

    async def ask(prompt: str, tokens: int) -> Sample:
        sampling = chat_pb2.Sampling(temperature=0, max_tokens=tokens, ignore_eos=True)
        asked = question(prompt, bypass=True, sampling=sampling, model=MODEL, budget_ms=_BUDGET_MS)
        return Sample(*await timed(by_grpc, asked), tokens)

    return ask


async def _alone(number: int, ask: Ask) -> Sample:
    await asyncio.sleep(SETTLE_S)
    return await ask(_prompt(number), TOKENS)


async def _together(number: int, ask: Ask) -> float:
    """Tokens/s of all callers together."""
    await asyncio.sleep(SETTLE_S)
    began = time.perf_counter()
    prompts = (_prompt(1_000 + CALLERS * number + caller) for caller in range(CALLERS))
    samples = await asyncio.gather(*(ask(prompt, TOKENS) for prompt in prompts))
    return sum(sample.tokens for sample in samples) / (time.perf_counter() - began)


def _prompt(number: int) -> str:
    return f"Story {number}. Tell me about a town by the sea that has {number} houses and a lighthouse."


def _row(alone: list[Sample], rates: list[float]) -> Mapping[str, float]:
    return {
        "first_ms": round(median(sample.first_s for sample in alone) * 1000, 1),
        "tokens_per_s": round(median(sample.tokens_per_s for sample in alone), 1),
        f"tokens_per_s_of_{CALLERS}": round(median(rates), 1),
    }
