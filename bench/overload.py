"""Overload: what one, two and five times as many requests as there is capacity for do to those let in.

The backend is simulated: `SLOTS` calls run at once and the others wait inside it, as in an engine that batches, so its
capacity is that of the slots and not of this machine's cores. Every class of priority is there, in two tenants.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.asking import llm_question, question
from bench.cluster import MODEL, Cluster, Progress
from bench.jagged.latency import Mixture, Profile
from bench.load import Arrival, Ask, OpenLoop, Outcome, Sample, ask_gateway, ask_llm, closed_loop, poisson
from bench.stats import percentiles

SLOTS = 12
PROFILE = Profile(Mixture(median_ms=120, sigma=0.25), each_ms=9)
TOKENS = 4  # so a call holds its slot for about 150 ms
LEVELS, LEVEL_S = (1.0, 2.0, 5.0), 20.0  # times the capacity, and for how many seconds
UNLOADED, UNLOADED_S = 0.4, 20.0
CALLERS, CALLERS_S = (12, 18, 24, 36), 5.0
RECOVERY, RECOVERY_S = 0.5, 15.0  # the load after the worst level, and how long recovery may take
WINDOW_S, STEP_S = 1.0, 0.1  # recovered: a window without a rejection, and with a p99 of 1.5 times the unloaded one
SETTLE_S = 1.0  # at the start of a level, not counted in its goodput
BUDGET_MS = 5_000
SEED = 11
_CONNECTIONS = 4


@dataclass(frozen=True, slots=True)
class Class:
    """A class of priority. Score: premium +100, real-time +75, each repeat -50."""

    name: str
    share: float  # of all requests
    tenant: str = "standard"
    realtime: bool = False
    attempt: int = 0


CLASSES = (
    Class("critical", 0.1, tenant="premium"),  # 100
    Class("high", 0.2, realtime=True),  # 75
    Class("normal", 0.6),  # 0
    Class("low", 0.1, attempt=1),  # -50
)


@dataclass(frozen=True, slots=True)
class Arrangement:
    """A gateway before a simulated backend."""

    gateway: Ask
    backend: Ask

    async def capacity_rps(self, seconds: float = CALLERS_S, callers: Sequence[int] = CALLERS) -> dict[str, float]:
        """The best goodput that a closed loop gets, at the backend itself and through the gateway."""
        best = {"backend": 0.0, "gateway": 0.0}
        for count in callers:
            for path, ask, requests in (
                ("backend", self.backend, _endless(_to_llm)),
                ("gateway", self.gateway, _endless(to_gateway(CLASSES[0]))),
            ):
                samples = await closed_loop(ask, requests, count, seconds)
                best[path] = max(best[path], goodput_rps(samples, seconds))
        return best

    async def unloaded(self, capacity_rps: float, seconds: float = UNLOADED_S) -> list[Sample]:
        """All classes, far below capacity."""
        return await OpenLoop(self.gateway).run(mixed(UNLOADED * capacity_rps, seconds, SEED))

    async def level(self, load: float, capacity_rps: float, seconds: float) -> list[Sample]:
        """All classes, at `load` times the capacity."""
        return await OpenLoop(self.gateway).run(mixed(load * capacity_rps, seconds, SEED + round(load * 10)))

    async def level_then_recovery(self, load: float, capacity_rps: float, seconds: float) -> list[Sample]:
        """The same, and then at once half the capacity for `RECOVERY_S`, those last with `at_s` from `seconds` on."""
        worst = mixed(load * capacity_rps, seconds, SEED + round(load * 10))
        after = mixed(RECOVERY * capacity_rps, RECOVERY_S, SEED, start_s=seconds)
        return await OpenLoop(self.gateway).run([*worst, *after])


@asynccontextmanager
async def arranged(folder: Path, progress: Progress = lambda line: None) -> AsyncIterator[Arrangement]:
    """The processes, serving."""
    tenants = {each.tenant for each in CLASSES}
    keys = {tenant: [hashlib.sha256(_key(tenant).encode()).hexdigest()] for tenant in tenants}
    async with AsyncExitStack() as stack:
        cluster = Cluster(stack, folder, progress)
        llm = await cluster.llm(profile=PROFILE.to_json(), tokens=TOKENS, slots=SLOTS, seed=SEED)
        front = await cluster.gateway(
            llm_addresses={MODEL: [llm.spec.address]},
            tenants={tenant: {"keys": keys[tenant], "premium": tenant == "premium"} for tenant in tenants},
        )
        fronts = [await cluster.channel(front) for _ in range(_CONNECTIONS)]
        backends = [await cluster.channel(llm) for _ in range(_CONNECTIONS)]
        timeout_s = BUDGET_MS / 1000 + 1
        yield Arrangement(ask_gateway(fronts, timeout_s), ask_llm(backends, timeout_s))


async def run(progress: Progress) -> dict[str, object]:
    """Start what is needed, measure, stop it. About four minutes."""
    with tempfile.TemporaryDirectory() as folder:
        async with arranged(Path(folder), progress) as arrangement:
            progress("looking for the capacity, in a closed loop")
            capacities = await arrangement.capacity_rps()
            capacity = max(capacities.values())
            progress(f"{capacity:.0f} requests/s; unloaded latencies at {UNLOADED:g} of it")
            unloaded = await arrangement.unloaded(capacity)
            levels = {}
            for load in LEVELS:
                progress(f"{load:g} times the capacity for {LEVEL_S:g} s")
                levels[load] = await arrangement.level(load, capacity, LEVEL_S)
    return {
        "capacity_rps": round(capacity, 1),
        **{f"{path}_capacity_rps": round(rate, 1) for path, rate in capacities.items()},
        "unloaded_p99_ms": p99_ms(unloaded),
        "levels": [summary(load, samples, LEVEL_S, capacity) for load, samples in levels.items()],
        "samples": sum(map(len, levels.values())) + len(unloaded),
        "seed": SEED,
    }


def mixed(rate: float, seconds: float, seed: int, start_s: float = 0) -> list[Arrival]:
    """Requests of all classes by their shares, every one another question. `at_s` begins at `start_s`."""
    rng = random.Random(seed)
    times = poisson(rate, seconds, rng)
    drawn = rng.choices(CLASSES, [each.share for each in CLASSES], k=len(times))
    makers = {each: to_gateway(each) for each in CLASSES}
    return [makers[each](start_s + at_s) for at_s, each in zip(times, drawn, strict=True)]


def to_gateway(of: Class) -> Callable[[float], Arrival]:
    """Makes requests of a class."""
    metadata = (("authorization", f"Bearer {_key(of.tenant)}"),)

    def make(at_s: float) -> Arrival:
        rank = {"realtime": of.realtime, "attempt": of.attempt}
        return Arrival(at_s, question(_text(), bypass=True, budget_ms=BUDGET_MS, **rank), of.name, metadata)

    return make


def goodput_rps(samples: Sequence[Sample], seconds: float) -> float:
    """Answers a second, once settled."""
    ends = (sample.at_s + sample.total_s for sample in samples if sample.good)
    return sum(SETTLE_S <= end < seconds for end in ends) / (seconds - SETTLE_S)


def p99_ms(samples: Sequence[Sample]) -> float:
    """The p99 of admitted answers, failed ones included."""
    return percentiles([each.waited_s * 1000 for each in samples if each.outcome != Outcome.REFUSED], 1)["p99"]


def summary(load: float, samples: Sequence[Sample], seconds: float, capacity_rps: float) -> dict[str, object]:
    """One level. `admitted` counts all that was not refused; `failed`, of those, the ones without an answer."""
    refused = [sample for sample in samples if sample.outcome == Outcome.REFUSED]
    admitted = [sample for sample in samples if sample.outcome != Outcome.REFUSED]
    times = percentiles([each.waited_s * 1000 for each in admitted], 1)
    refusals = percentiles([each.total_s * 1000 for each in refused], 2) if len(refused) > 1 else {}
    goodput = goodput_rps(samples, seconds)
    return {
        "load": load,
        "offered_rps": round(len(samples) / seconds, 1),
        "goodput_rps": round(goodput, 1),
        "goodput_of_peak": round(goodput / capacity_rps, 3),
        "admitted_p50_ms": times["p50"],
        "admitted_p99_ms": times["p99"],
        "rejected": _by_class(refused),
        "admitted": _by_class(admitted),
        "rejection_p50_ms": refusals.get("p50"),
        "rejection_p95_ms": refusals.get("p95"),
        "rejection_p99_ms": refusals.get("p99"),
        "failed": sum(not sample.good for sample in admitted),
        "generator_lag_p99_ms": percentiles([sample.lag_s * 1000 for sample in samples], 2)["p99"],
    }


def recovery_s(samples: Sequence[Sample], start_s: float, normal_p99_ms: float) -> float | None:
    """Seconds from `start_s` to the first window that is as without overload; None where there is none."""
    for step in range(round((RECOVERY_S - WINDOW_S) / STEP_S) + 1):
        since = start_s + step * STEP_S
        window = [sample for sample in samples if since <= sample.at_s < since + WINDOW_S]
        calm = all(sample.good for sample in window)
        if calm and len(window) > 1 and p99_ms(window) <= normal_p99_ms:
            return round(step * STEP_S, 1)
    return None


def _by_class(samples: Sequence[Sample]) -> dict[str, int]:
    counts = Counter(sample.label for sample in samples)
    return {each.name: counts[each.name] for each in CLASSES}


_numbers = itertools.count()


def _text() -> str:
    """No two are equal: equal ones would share a generation."""
    return f"Where is order {next(_numbers)}?"


def _to_llm(at_s: float) -> Arrival:
    return Arrival(at_s, llm_question(_text()))


def _endless(make: Callable[[float], Arrival]) -> Iterator[Arrival]:
    return (make(0.0) for _ in itertools.count())


def _key(tenant: str) -> str:
    return f"key-of-{tenant}"
