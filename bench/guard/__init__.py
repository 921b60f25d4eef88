"""What a guard finds, what it lets pass, and what a guarded request takes longer.

Accuracy on the texts beside this file, which were written by hand and which nothing was trained on or tuned with; times
on a real gateway and cache before a simulated engine that answers at once, three tenants in turns.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
from rich.console import Group
from rich.table import Table

from bench import first_text
from bench.stats import ADDED, cpu_s, percentiles
from hedgerow.channel import open_channel
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2
from launcher.processes import ServiceProcess, ServiceSpec, free_ports
from services.gateway.config import UNGUARDED
from services.gateway.guard import injection
from services.runtime.complexity import Complexity, classify
from services.runtime.security.private_data import find, hidden

SAMPLES, BLOCK, WARM_UP, TOKENS = 1_500, 50, 3, 16  # of each tenant; that follow each other; blocks; of an answer
TENANTS: Mapping[str, Mapping[str, str]] = {
    "none": {},
    "request": {"injection": "refuse", "secrets": "mask", "personal": "mask"},
    "request and answer": {
        **{"injection": "refuse", "secrets": "mask", "personal": "mask"},
        **{"answer_secrets": "mask", "answer_personal": "mask"},
    },
}
_FOLDER = Path(__file__).parent
_LENGTHS = (100, 1_000, 8_000)  # characters
_SENTENCE = "Please check whether the meeting of 12 March still takes place at nine, and who will be there. "
Progress = Callable[[str], None]


async def run(progress: Progress) -> dict[str, object]:
    """Read the texts, start what is needed, measure, stop it. About half a minute."""
    progress("guard: what it finds")
    told: dict[str, object] = {
        "injections": _injections(_texts("injections")),
        "private": _private(_texts("private")),
        "complexity": _complexity(_texts("questions")),
        "work_ms": {str(length): _work_ms((_SENTENCE * 100)[:length]) for length in _LENGTHS},
    }
    with tempfile.TemporaryDirectory() as folder:
        async with _mesh(Path(folder), progress) as (ask, gateway):
            progress(f"guard: {SAMPLES} questions of {len(TENANTS)} tenants in turns")
            return told | {"requests": await _requests(ask, gateway)}


def _texts(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (_FOLDER / f"{name}.jsonl").read_text().splitlines()]


def _injections(texts: list[dict[str, Any]]) -> dict[str, float]:
    found = [(text["injection"], _is_injection(text["text"])) for text in texts]
    return {"n": len(texts), **_scores(found)}


def _is_injection(text: str) -> bool:
    least = UNGUARDED.injection_score
    return any(injection.by_pattern(piece) or injection.probability(piece) >= least for piece in injection.pieces(text))


def _private(texts: list[dict[str, Any]]) -> dict[str, float]:
    """By texts: whether anything is found in one that holds something, and whether the right part of it is hidden."""
    found = [(text["text"] != text["hidden"], hidden(text["text"]) != text["text"]) for text in texts]
    exact = sum(hidden(text["text"]) == text["hidden"] for text in texts) / len(texts)
    return {"n": len(texts), **_scores(found), "exact": round(exact, 4)}


def _complexity(texts: list[dict[str, Any]]) -> dict[str, Any]:
    right = [(classify(text["text"]) is Complexity.COMPLEX) is text["complex"] for text in texts]
    took = [_timed(partial(classify, text["text"])) for text in texts * 20]
    return {"n": len(texts), "right": round(sum(right) / len(right), 4), "ms": percentiles(took, 4)}


def _scores(found: list[tuple[bool, bool]]) -> dict[str, float]:
    """Of (what is so, what was said)."""
    hits = sum(so and said for so, said in found)
    said, so = sum(said for _, said in found), sum(so for so, _ in found)
    return {"precision": round(hits / said, 4), "recall": round(hits / so, 4), "false_alarms": said - hits}


def _work_ms(text: str) -> dict[str, Any]:
    from services.runtime.security.credentials import SECRETS
    from services.runtime.security.personal_data import PERSONAL

    rules = (*SECRETS, *PERSONAL)
    private = [_timed(lambda: find(text, rules)) for _ in range(100)]
    injected = [_timed(lambda: [injection.probability(piece) for piece in injection.pieces(text)]) for _ in range(100)]
    return {"private": percentiles(private, 4), "injection": percentiles(injected, 4)}


def _timed(work: Callable[[], object]) -> float:
    """In milliseconds."""
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000


Ask = Callable[[str, str], Any]  # of a tenant, a question; seconds to the first text and to the end


async def _requests(ask: Ask, gateway: int) -> dict[str, Any]:
    """`gateway`: the process whose time counts."""
    times: dict[str, list[tuple[float, float]]] = {tenant: [] for tenant in TENANTS}
    spent = dict.fromkeys(TENANTS, 0.0)
    for block in range(WARM_UP + SAMPLES // BLOCK):
        for tenant in TENANTS:
            before = cpu_s(gateway)
            timings = [await ask(tenant, f"What is {block} times {each}? {_SENTENCE}") for each in range(BLOCK)]
            if block >= WARM_UP:
                times[tenant] += timings
                spent[tenant] += cpu_s(gateway) - before
    told: dict[str, Any] = {
        tenant: {
            "ttft_ms": percentiles([first * 1000 for first, _ in timings]),
            "total_ms": percentiles([total * 1000 for _, total in timings]),
            "cpu_ms": round(spent[tenant] * 1000 / SAMPLES, 3),
        }
        for tenant, timings in times.items()
    }
    for tenant in TENANTS:
        plain, own = told["none"]["total_ms"], told[tenant]["total_ms"]
        told[tenant]["added_ms"] = {key: round(own[key] - plain[key], 3) for key in own}
    return told | {"n": SAMPLES}


@asynccontextmanager
async def _mesh(folder: Path, progress: Progress) -> AsyncIterator[tuple[Ask, int]]:
    names = ("llm", "cache", "gateway")
    addresses = {name: f"127.0.0.1:{port}" for name, port in zip(names, free_ports(len(names)), strict=True)}
    async with AsyncExitStack() as stack:
        for spec in _specs(addresses, folder):
            progress(f"guard: starting {spec.name}")
            process = ServiceProcess(spec, folder)
            stack.push_async_callback(process.stop)
            await process.wait_serving()
        channel = await stack.enter_async_context(open_channel(addresses["gateway"]))
        generate: Any = channel.unary_stream("/hedgerow.gateway.v1.GatewayService/Generate")

        async def ask(tenant: str, question: str) -> tuple[float, float]:
            return await _stream(generate, tenant, question)

        yield ask, process.pid  # the gateway's, which was started last


def _specs(addresses: Mapping[str, str], folder: Path) -> list[ServiceSpec]:
    tenants = {name: {"keys": [_digest(name)], "guard": own} for name, own in TENANTS.items()}
    gateway = {
        "ADDRESS": addresses["gateway"],
        "CACHE_ADDRESS": addresses["cache"],
        "ROUTER_ADDRESS": "",
        "LLM_ADDRESSES": json.dumps({"simulated": addresses["llm"]}),
        "TENANTS": json.dumps(tenants),
    }
    settings = {
        "llm": ("bench.simulated_llm", {"HEDGEROW_SIMULATED_LLM_ADDRESS": addresses["llm"]}),
        "cache": (
            "services.cache",
            {"HEDGEROW_CACHE_ADDRESS": addresses["cache"], "HEDGEROW_CACHE_DATABASE": str(folder / "cache.db")},
        ),
        "gateway": ("services.gateway", {f"HEDGEROW_GATEWAY_{name}": value for name, value in gateway.items()}),
    }
    return [ServiceSpec(name, module, addresses[name], env) for name, (module, env) in settings.items()]


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


async def _stream(generate: Any, tenant: str, question: str) -> tuple[float, float]:
    request = gateway_pb2.GenerateRequest(
        messages=[chat_pb2.Message(role=chat_pb2.ROLE_USER, content=question)],
        sampling=chat_pb2.Sampling(max_tokens=TOKENS),
        cache=gateway_pb2.CachePolicy(min_similarity=1),
        budget_ms=20_000,
    )
    started, first = time.perf_counter(), None
    call = generate(request.SerializeToString(), timeout=30, metadata=(("authorization", f"Bearer {tenant}"),))
    while (message := await call.read()) is not grpc.aio.EOF:
        events = gateway_pb2.GenerateResponse.FromString(message).events
        if first is None and any(map(first_text.is_in_event, events)):
            first = time.perf_counter() - started
    total = time.perf_counter() - started
    return first or total, total


def table(result: Mapping[str, Any]) -> Group:
    """For people."""
    found = Table("", "texts", "precision", "recall", "false alarms", title="What is found")
    for name in ("injections", "private"):
        told = result[name]
        found.add_row(
            name, str(told["n"]), f"{told['precision']:.1%}", f"{told['recall']:.1%}", str(told["false_alarms"])
        )
    told = result["complexity"]
    found.caption = f"complexity: {told['right']:.1%} of {told['n']} questions right, p99 {told['ms']['p99']} ms"
    work = Table("characters", "private, p50", "p99", "injection, p50", "p99", title="Work, ms")
    for length, took in result["work_ms"].items():
        cells = (took[what][key] for what in ("private", "injection") for key in ("p50", "p99"))
        work.add_row(length, *map(str, cells))
    asked = Table("guard", "first p50", "first p99", "total p50", "total p99", "added p50", "added p99", "CPU")
    asked.title, asked.caption = f"Requests, ms ({result['requests']['n']} each)", ADDED
    for tenant in TENANTS:
        told = result["requests"][tenant]
        cells = (told[what][key] for what in ("ttft_ms", "total_ms", "added_ms") for key in ("p50", "p99"))
        asked.add_row(tenant, *map(str, cells), str(told["cpu_ms"]))
    return Group(found, work, asked)
