"""What a jagged provider looks like through the gateway: before and after, on the same arrivals and seed.

The provider is simulated, with the latencies of `bench.jagged.latency.ARTICLES`. The three arms (`bench.jagged.arms`)
take turns, a block each, so that whatever else the machine does meets all alike; one block's calls have ended before
the next begins. Draws `docs/jagged_cdf.png` and `docs/jagged_timeline.png`.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.table import Table

from bench.jagged.arms import HEDGE, LIMIT, Arm, open_arms
from bench.jagged.questions import Question, arrivals, ask_around
from bench.jagged.summary import Record
from bench.jagged.tally import read_tally
from bench.load import OpenLoop, Sample
from bench.stats import percentiles

RATE = 80.0  # requests a second
BLOCKS, BLOCK_S = 3, 18.0  # per arm
WARM_UP_S = 15.0  # of the same load on all arms together, not counted
REPEAT_SHARE = 0.4
SEED = 7
DOCS = Path(__file__).parents[2] / "docs"
Progress = Callable[[str], None]


async def run(progress: Progress) -> dict[str, object]:
    """Start what is needed, measure, draw, stop it. About five minutes."""
    with tempfile.TemporaryDirectory() as folder:
        progress("jagged: starting the arms")
        async with open_arms(Path(folder), SEED) as arms:
            records = {arm.name: Record() for arm in arms}
            warm_up, *blocks = _plans()
            progress("jagged: warming all arms up")
            await asyncio.gather(*(_ask(arm, warm_up) for arm in arms))
            for block, questions in enumerate(blocks):
                for turn in range(len(arms)):  # who is first changes from block to block
                    arm = arms[(block + turn) % len(arms)]
                    progress(f"jagged: block {block + 1} of {BLOCKS}, {arm.name}")
                    before = await read_tally(arm.metrics)
                    samples = await _ask(arm, questions)
                    spent = await read_tally(arm.metrics) - before
                    records[arm.name].add(_later(samples, block * BLOCK_S), spent)
    return _result(records, progress)


def _plans() -> list[list[Question]]:
    """One stream of questions, cut into the warm-up and the blocks: repeats reach back over the cuts."""
    questions = ask_around(RATE, WARM_UP_S + BLOCKS * BLOCK_S, REPEAT_SHARE, SEED)
    starts = [0.0, *(WARM_UP_S + block * BLOCK_S for block in range(BLOCKS + 1))]
    return [
        [replace(each, at_s=each.at_s - start) for each in questions if start <= each.at_s < end]
        for start, end in pairwise(starts)
    ]


async def _ask(arm: Arm, questions: Sequence[Question]) -> list[Sample]:
    return await OpenLoop(arm.ask).run(arrivals(questions, arm.request))


def _later(samples: Sequence[Sample], by_s: float) -> list[Sample]:
    return [replace(sample, at_s=sample.at_s + by_s) for sample in samples]


def _result(records: Mapping[str, Record], progress: Progress) -> dict[str, object]:
    from bench.jagged.plots import draw

    for path in draw({name: record.samples for name, record in records.items()}, DOCS):
        progress(f"jagged: drew {path}")
    lags = [lag for record in records.values() for lag in record.lags_s]
    return {
        **{name: record.summary() for name, record in records.items()},
        "hit_rate": records["after"].hit_rate,
        "repeat_rate": REPEAT_SHARE,
        "samples": len(records["after"].samples),
        "seed": SEED,
        "offered_rps": RATE,
        "generator_lag_ms": percentiles([lag * 1000 for lag in lags], 2),
        "settings": {"hedge": HEDGE, "limit": LIMIT},
    }


def table(result: Mapping[str, Any]) -> Table:
    """The result, for people."""
    table = Table(title=f"A jagged provider (simulated), {result['samples']} requests per arm, the same for each")
    for column in ("", "p50", "p95", "p99", "p99.9", "timeouts", "success", "calls", "extra calls", "$ per 1,000"):
        table.add_column(column, justify="right" if column else "left")
    for name in ("before", "hedging_only", "after"):
        row = result[name]
        for title, times in (("first text", row["ttft_ms"]), ("total", row["total_ms"])):
            cells = [f"{times[key]:,.0f} ms" for key in ("p50", "p95", "p99", "p999")]
            if title == "total":
                cells += [f"{row['timeout_rate']:.2%}", f"{row['success_rate']:.2%}", f"{row['calls_per_request']:.3f}"]
                cells += [f"{row['extra_calls_share']:.1%}", f"{row['cost_usd_per_1000']:.4f}"]
            table.add_row(f"{name.replace('_', ' ')}, {title}", *cells)
    table.caption = (
        f"{result['offered_rps']:g} requests/s, {result['repeat_rate']:.0%} repeats, {result['hit_rate']:.1%} hits, "
        f"seed {result['seed']}; the generator was {result['generator_lag_ms']['p99']:.1f} ms late at p99"
    )
    return table
