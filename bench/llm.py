"""What the llm service costs over vLLM itself, and what speculation, the prefix cache and the warm-up are worth.

The service (over gRPC) and vLLM's bare `AsyncLLM` (`bench.raw_vllm`), each a process of its own with the same settings,
are loaded side by side and asked in turns, one at a time, so that whatever else the machine does meets both alike.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from hedgerow.channel import open_channel
from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2, llm_pb2_grpc
from launcher.processes import ServiceProcess, ServiceSpec, free_port
from tests.models import MODELS

NAME = "llm"
STORIES = 20  # per path
IN_A_ROW = 5  # of them to one path before the next has its turn
SETTLE_S = 1.1  # vLLM's worker polls for a second after its last step, which takes a core from its neighbour
PREFIXES = 10  # long prompts, each asked twice
START_S = 300.0
ANIMALS = ("fox", "owl", "bear", "rabbit", "turtle")  # the model knows stories about these
SPECULATION: dict[str, dict[str, Any] | None] = {
    "off": None,
    "ngram": {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4, "prompt_lookup_min": 2},
    "draft": {"method": "draft_model", "model": str(MODELS / "demo-llm-draft"), "num_speculative_tokens": 4},
}
# Four engines on a few cores starve each other for longer than the mesh waits for a sign of life.
PATIENT = (
    ("grpc.http2.ping_timeout_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.min_reconnect_backoff_ms", 20_000),
)
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Sample:
    """One answer."""

    first_s: float  # to the first text
    total_s: float
    tokens: int
    accepted: int  # of those, proposed by speculation

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.total_s

    @property
    def accepted_per_step(self) -> float:
        """A step yields what was accepted and one token more."""
        return self.accepted / (self.tokens - self.accepted)


Ask = Callable[[str, int], Awaitable[Sample]]  # a prompt and the most tokens


async def run(progress: Progress) -> dict[str, object]:
    """Start what is needed, measure, stop it. About four minutes, most of it loading."""
    with tempfile.TemporaryDirectory() as folder:
        async with _Services(Path(folder), progress) as services:
            draft, pair = await _pair(services, Path(folder), progress)
            prefix = await _prefix_cache(draft, progress)
            off, ngram, cold = await asyncio.gather(
                services.start("off", SPECULATION["off"]),
                services.start("ngram", SPECULATION["ngram"]),
                services.start("ngram-cold", SPECULATION["ngram"], WARM_UP="false"),
            )
            warmup = await _warm_up(cold, ngram, progress)
            progress(f"llm: {STORIES} stories each without speculation, with ngram and with a draft model, in turns")
            speculation = await _in_turns({"off": off, "ngram": ngram, "draft": draft}, STORIES)
    return _result(pair, speculation, prefix, warmup)


async def _pair(services: _Services, folder: Path, progress: Progress) -> tuple[Ask, dict[str, list[Sample]]]:
    starting = services.start("draft", SPECULATION["draft"])
    async with _raw(SPECULATION["draft"], folder, progress) as raw:
        draft = await starting
        progress(f"llm: {STORIES} stories each from vLLM and from the service, in turns")
        return draft, await _in_turns({"raw": raw, "service": draft}, STORIES)


def _result(
    pair: Mapping[str, Sequence[Sample]],
    speculation: Mapping[str, Sequence[Sample]],
    prefix_cache: dict[str, float],
    warmup: dict[str, float],
) -> dict[str, object]:
    ratios = [s.tokens_per_s / r.tokens_per_s for s, r in zip(pair["service"], pair["raw"], strict=True)]
    speeds = {name: median(sample.tokens_per_s for sample in samples) for name, samples in speculation.items()}
    return {
        **{name: _speed(samples) for name, samples in pair.items()},
        "service_over_raw": round(median(ratios), 3),
        "speculation": {
            name: {
                "tokens_per_s": round(speeds[name], 1),
                "accepted_per_step": round(median(sample.accepted_per_step for sample in samples), 2),
                "over_off": round(speeds[name] / speeds["off"], 2),
            }
            for name, samples in speculation.items()
        },
        "prefix_cache": prefix_cache,
        "warmup": warmup,
        "samples": {"stories": STORIES, "prefixes": PREFIXES, "warmup": 1},
    }


def _speed(samples: Sequence[Sample]) -> dict[str, float]:
    return {
        "tokens_per_s": round(median(sample.tokens_per_s for sample in samples), 1),
        "ttft_ms": round(median(sample.first_s for sample in samples) * 1000, 2),
    }


def table(result: Mapping[str, Any]) -> Table:
    """The result, for people."""
    count = result["samples"]
    table = Table("what", "tokens/s", "first text, ms", "accepted per step", title="The llm service, medians")
    for name, title in (("raw", "vLLM, draft model"), ("service", "the service, draft model")):
        table.add_row(title, f"{result[name]['tokens_per_s']:.1f}", f"{result[name]['ttft_ms']:.1f}", "")
    table.add_section()
    for name, row in result["speculation"].items():
        speed = f"{row['tokens_per_s']:.1f} ({row['over_off']:.2f}×)"
        table.add_row(f"the service, speculation {name}", speed, "", f"{row['accepted_per_step']:.2f}")
    table.add_section()
    for name in ("cold", "warm"):
        table.add_row(f"prefix cache, {name}", "", f"{result['prefix_cache'][f'{name}_ttft_ms']:.1f}", "")
    for name in ("without", "with"):
        table.add_row(f"first request, {name} warm-up", "", f"{result['warmup'][f'{name}_ms']:.1f}", "")
    table.caption = (
        f"The service gives {result['service_over_raw']:.1%} of vLLM's tokens/s. {count['stories']} stories per row, "
        f"{count['prefixes']} long prompts, {count['warmup']} first request."
    )
    return table


async def _in_turns(paths: Mapping[str, Ask], stories: int) -> dict[str, list[Sample]]:
    """The same stories for each path, a few in a row; who is first changes from turn to turn."""
    samples: dict[str, list[Sample]] = {name: [] for name in paths}
    names = list(paths)
    for turn in range(-1, stories // IN_A_ROW):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            await asyncio.sleep(SETTLE_S)
            told = [await paths[name](f"Tell me a long story about a {animal}.", 256) for animal in ANIMALS[:IN_A_ROW]]
            if turn >= 0:  # the turn before the first is not counted
                samples[name] += told
    return samples


async def _prefix_cache(ask: Ask, progress: Progress) -> dict[str, float]:
    progress(f"llm: {PREFIXES} long prompts, each twice")
    cold, warm = [], []
    for number in range(PREFIXES):
        facts = "".join(f"- Fact {number}.{line}: the fox lives near the river.\n" for line in range(50))
        prompt = f"Context:\n{facts}\nQuestion: Where does the fox live?"
        cold.append((await ask(prompt, 1)).first_s * 1000)
        warm.append((await ask(prompt, 1)).first_s * 1000)
    return {"cold_ttft_ms": round(median(cold), 2), "warm_ttft_ms": round(median(warm), 2)}


async def _warm_up(cold: Ask, warm: Ask, progress: Progress) -> dict[str, float]:
    progress("llm: the first request of a service that did not warm up and of one that did")
    prompt = "Tell me a story about a fox. Tell me a story about a fox."
    await asyncio.sleep(SETTLE_S)
    without = await cold(prompt, 32)
    await asyncio.sleep(SETTLE_S)
    with_ = await warm(prompt, 32)
    return {"without_ms": round(without.total_s * 1000, 1), "with_ms": round(with_.total_s * 1000, 1)}


def _settings(speculative: dict[str, Any] | None) -> dict[str, Any]:
    """What both engines are told."""
    settings = {"model": str(MODELS / "demo-llm"), "max_model_len": 2048, "max_num_seqs": 16, "enforce_eager": True}
    return {**settings, "speculative_config": speculative} if speculative else settings


class _Services(AsyncExitStack):
    """Starts llm services, and stops them all in the end."""

    def __init__(self, folder: Path, progress: Progress):
        super().__init__()
        self._folder, self._progress = folder, progress

    def start(self, name: str, speculative: dict[str, Any] | None, **settings: str) -> Awaitable[Ask]:
        """Start it now, whenever the result is awaited: that is, once it serves."""
        self._progress(f"llm: starting the service, {name}")
        address = f"127.0.0.1:{free_port()}"
        engine = {f"VLLM__{field.upper()}": _text(value) for field, value in _settings(speculative).items()}
        environment = {"ADDRESS": address, **engine, **settings}
        prefixed = {f"HEDGEROW_LLM_{key}": value for key, value in environment.items()}
        process = ServiceProcess(ServiceSpec(f"llm-{name}", "services.llm", address, prefixed), self._folder)
        self.push_async_callback(process.stop)
        return self._serving(process)

    async def _serving(self, process: ServiceProcess) -> Ask:
        await process.wait_serving(START_S)
        channel = await self.enter_async_context(open_channel(process.spec.address, PATIENT))
        stub = llm_pb2_grpc.LLMServiceStub(channel)  # type: ignore[no-untyped-call]
        return lambda prompt, max_tokens: _ask_service(stub, prompt, max_tokens)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


async def _ask_service(stub: Any, prompt: str, max_tokens: int) -> Sample:
    request = llm_pb2.GenerateRequest(
        messages=[chat_pb2.Message(role=chat_pb2.ROLE_USER, content=prompt)],
        sampling=chat_pb2.Sampling(temperature=0, max_tokens=max_tokens),
    )
    started, first, finish = time.perf_counter(), 0.0, llm_pb2.Finish()
    async for reply in stub.Generate(request, timeout=60):
        first = first or time.perf_counter() - started
        finish = reply.finish
    total = time.perf_counter() - started
    return Sample(first, total, finish.usage.completion_tokens, finish.usage.accepted_tokens)


@asynccontextmanager
async def _raw(speculative: dict[str, Any] | None, folder: Path, progress: Progress) -> AsyncIterator[Ask]:
    """`bench.raw_vllm`, loaded."""
    progress("llm: loading vLLM")
    with (folder / "raw.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.raw_vllm", json.dumps(_settings(speculative))),
            stdin=PIPE,
            stdout=PIPE,
            stderr=log,
        )
    assert process.stdin
    assert process.stdout
    requests, replies = process.stdin, process.stdout

    async def ask(prompt: str, max_tokens: int) -> Sample:
        requests.write(json.dumps({"prompt": prompt, "max_tokens": max_tokens}).encode() + b"\n")
        reply = json.loads(await replies.readline())
        return Sample(**{name: value for name, value in reply.items() if name != "id"})

    try:
        await asyncio.wait_for(replies.readline(), START_S)
        yield ask
    finally:
        requests.close()
        await process.wait()
