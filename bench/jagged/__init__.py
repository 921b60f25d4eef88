"""What a jagged provider looks like through the gateway: before and after, on the same arrivals and seed.

The provider is simulated, with the latencies of `bench.jagged.latency.ARTICLES`. The three arms (`bench.jagged.arms`)
take turns, a block each, so that whatever else the machine does meets all alike; one block's calls have ended before
the next begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

from bench.asking import in_turns
from bench.cluster import Progress, clustered
from bench.jagged.arms import HEDGE, LIMIT, Arm, open_arms
from bench.jagged.questions import Question, arrivals, ask_around
from bench.jagged.summary import Record
from bench.jagged.tally import Tally, read_tally
from bench.load import OpenLoop, Sample
from bench.stats import percentiles

RATE = 80.0  # requests a second
BLOCKS, BLOCK_S = 3, 18.0  # per arm
WARM_UP_S = 15.0  # of the same load on all arms together, not counted
REPEAT_SHARE = 0.4
SEED = 7


async def run(progress: Progress) -> dict[str, object]:
    """Start what is needed, measure, stop it. About five minutes."""
    async with clustered(progress) as cluster:
        arms = await open_arms(cluster, SEED)
        warm_up, *blocks = _plans()
        progress("warming all arms up")
        await asyncio.gather(*(_ask(arm, warm_up) for arm in arms))
        progress(f"{BLOCKS} blocks of {BLOCK_S:g} s for each arm")
        found = await in_turns({arm.name: partial(_block, arm=arm, blocks=blocks) for arm in arms}, BLOCKS)
    records = {name: Record() for name in found}
    for name, taken in found.items():
        for samples, spent in taken:
            records[name].add(samples, spent)
    lags = [sample.lag_s * 1000 for record in records.values() for sample in record.samples]
    return {
        **{name: record.summary() for name, record in records.items()},
        "hit_rate": records["after"].hit_rate,
        "repeat_rate": REPEAT_SHARE,
        "samples": len(records["after"].samples),
        "seed": SEED,
        "offered_rps": RATE,
        "generator_lag_ms": percentiles(lags, 2),
        "settings": {"hedge": HEDGE, "limit": LIMIT},
    }


def _plans() -> list[list[Question]]:
    """One stream of questions, cut into the warm-up and the blocks: repeats reach back over the cuts."""
    questions = ask_around(RATE, WARM_UP_S + BLOCKS * BLOCK_S, REPEAT_SHARE, SEED)
    starts = [0.0, *(WARM_UP_S + block * BLOCK_S for block in range(BLOCKS + 1))]
    return [
        [replace(each, at_s=each.at_s - start) for each in questions if start <= each.at_s < end]
        for start, end in pairwise(starts)
    ]


async def _block(number: int, arm: Arm, blocks: Sequence[Sequence[Question]]) -> tuple[list[Sample], Tally]:
    """What came of a block's calls, and what the provider counted meanwhile."""
    before = await read_tally(arm.metrics)
    samples = await _ask(arm, blocks[number])
    return samples, await read_tally(arm.metrics) - before


async def _ask(arm: Arm, questions: Sequence[Question]) -> list[Sample]:
    return await OpenLoop(arm.ask).run(arrivals(questions, arm.request))
