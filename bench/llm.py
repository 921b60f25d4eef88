"""Latency and throughput that the llm service adds to vLLM, and the gain of a draft model.

The service (over gRPC) and vLLM's bare `AsyncLLM` (`bench.raw_vllm`), each a process of its own with the same settings,
are loaded side by side and asked in turns, one at a time, so that whatever else the machine does meets both alike.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

from bench import raw_vllm
from bench.asking import in_turns, user
from bench.cluster import Cluster, Progress, clustered
from bench.raw_vllm import Ask, Sample
from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2, llm_pb2_grpc
from tests.models import MODELS

ANIMALS = ("fox", "owl", "bear", "rabbit", "turtle")  # the model knows stories about these
TURNS = 4  # of a story about each
SETTLE_S = 1.1  # vLLM's worker polls for a second after its last step, which takes a core from its neighbour
_SETTINGS: dict[str, Any] = {
    "model": str(MODELS / "demo-llm"),
    "max_model_len": 2048,
    "max_num_seqs": 16,
    "enforce_eager": True,
}
_DRAFT = {"method": "draft_model", "model": str(MODELS / "demo-llm-draft"), "num_speculative_tokens": 4}
_DRAFTED: dict[str, Any] = {**_SETTINGS, "speculative_config": _DRAFT}
# Two engines on a few cores starve each other for longer than the mesh waits for a sign of life.
_PATIENT = (
    ("grpc.http2.ping_timeout_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.min_reconnect_backoff_ms", 20_000),
)


async def run(progress: Progress) -> dict[str, object]:
    """Start what is needed, measure, stop it. About four minutes, most of it loading."""
    async with clustered(progress) as cluster:
        async with clustered(progress) as first:  # vLLM itself is stopped before more engines start
            raw, service = await asyncio.gather(
                raw_vllm.loaded(first, **_DRAFTED), _service(cluster, "draft", _DRAFTED)
            )
            progress(f"{TURNS * len(ANIMALS)} stories each from vLLM and from the service, in turns")
            pair = await _told({"raw": raw, "service": service})
        off = await _service(cluster, "off", _SETTINGS)
        progress(f"{TURNS * len(ANIMALS)} stories each without speculation and with a draft model, in turns")
        speculation = await _told({"off": off, "draft": service})
    return {
        **{name: _speed(samples) for name, samples in pair.items()},
        "service_over_raw": round(
            median(one.tokens_per_s / raw.tokens_per_s for one, raw in zip(pair["service"], pair["raw"], strict=True)),
            3,
        ),
        "speculation": {name: _speed(samples) for name, samples in speculation.items()},
        "samples": TURNS * len(ANIMALS),
    }


def _speed(samples: Sequence[Sample]) -> dict[str, float]:
    return {
        "tokens_per_s": round(median(sample.tokens_per_s for sample in samples), 1),
        "ttft_ms": round(median(sample.first_s for sample in samples) * 1000, 2),
    }


async def _told(ways: Mapping[str, Ask]) -> dict[str, list[Sample]]:
    """The same stories from each, a few in a row."""

    async def stories(number: int, ask: Ask) -> list[Sample]:
        await asyncio.sleep(SETTLE_S)
        return [await ask(f"Tell me a long story about a {animal}.", 256) for animal in ANIMALS]

    told = await in_turns({name: partial(stories, ask=ask) for name, ask in ways.items()}, TURNS, 1)
    return {name: [sample for each in turns for sample in each] for name, turns in told.items()}


async def _service(cluster: Cluster, name: str, settings: Mapping[str, Any]) -> Ask:
    process = await cluster.start(
        f"llm-{name}", "services.llm", **{f"vllm__{name}": value for name, value in settings.items()}
    )
    stub: Any = llm_pb2_grpc.LLMServiceStub(await cluster.channel(process, _PATIENT))  # type: ignore[no-untyped-call]

    async def ask(prompt: str, tokens: int) -> Sample:
        sampling = chat_pb2.Sampling(temperature=0, max_tokens=tokens)
        began, first, finish = time.perf_counter(), 0.0, llm_pb2.Finish()
        async for reply in stub.Generate(llm_pb2.GenerateRequest(messages=user(prompt), sampling=sampling), timeout=60):
            first = first or time.perf_counter() - began
            finish = reply.finish
        return Sample(first, time.perf_counter() - began, finish.usage.completion_tokens)

    return ask
