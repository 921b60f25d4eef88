"""What the vision service costs over its model, and what its batcher is worth.

The model itself (`bench.vision.bare`), the service with and without its batcher, and an idle service
(`bench.vision.idle`) each have a process of their own and are asked in turns, with the same pictures, so that whatever
else the machine does meets them alike. The bare model batches in the best way found by trying.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from bench.stats import percentiles
from bench.vision import larger
from bench.vision.paths import Asked, BareModel, Remote, Services, WithoutRest, bare_model, pictures
from hedgerow.vision.v1 import vision_pb2

ROUNDS = 36  # of single requests
IN_A_ROW = 20  # of them to one path before the next has its turn
CALLERS = (8, 32)
LOADS = 7  # measurements of throughput for each path and number of callers
LOAD_S = 1.0  # of each
TRY_S = 0.4  # of each way to batch by hand
SIZES = (1, 4, 8, 16, 32)  # of the batches made by hand
_BATCHED = {"bare": "bare_batched", "service": "service"}
Progress = Callable[[str], None]
Measure = Callable[[], Awaitable[float]]


async def run(progress: Progress) -> dict[str, object]:
    """Start what is needed, measure, stop it. About four minutes."""
    with tempfile.TemporaryDirectory() as folder:
        progress("vision: starting the model, the service with and without batches, and an idle service")
        async with bare_model(Path(folder)) as bare, Services(Path(folder)) as services:
            idle = await services.idle()
            batching = await services.vision("batching")
            unbatched = await services.vision("unbatched", max_size=1, preferred=[])
            single = await _single(
                {"bare": bare, "bare_hot": WithoutRest(bare), "service": batching, "transport": idle}, progress
            )
            steps = _steps(batching.timings)
            remotes = {
                "service": batching,
                "service_unbatched": unbatched,
                "service_8_together": batching.together(8),
                "transport": idle,
            }
            throughput = await _throughput(bare, remotes, progress)
            progress("vision: the engines")
            engines = await bare.engines()
        larger_model = await _larger(Path(folder), progress)
    requests = ROUNDS * IN_A_ROW
    return {
        "single": {**single, **steps},
        "throughput": throughput,
        "larger_model": larger_model,
        "engines": engines,
        "samples": {"single": requests, "throughput": LOADS, "seconds_each": LOAD_S},
    }


async def _larger(folder: Path, progress: Progress) -> dict[str, object]:
    """The same with a model that computes for milliseconds."""
    progress("vision: a larger model")
    model = await asyncio.to_thread(larger.make, folder)
    async with bare_model(folder, model) as bare, Services(folder) as services:
        remotes = {
            "service": await services.vision("larger-batching", model),
            "service_unbatched": await services.vision("larger-unbatched", model, max_size=1, preferred=[]),
            "transport": await services.idle(),
        }
        single: dict[str, Asked] = {name: remotes[name] for name in ("service", "transport")}
        single["bare"] = bare
        return {"single": await _single(single, progress), "throughput": await _throughput(bare, remotes, progress)}


async def _single(paths: Mapping[str, Asked], progress: Progress) -> dict[str, float]:
    """The percentiles of each path, over all pictures alike."""
    progress(f"vision: {ROUNDS * IN_A_ROW} single requests each, in turns")
    spent: dict[str, list[float]] = {name: [] for name in paths}
    names, files = list(paths), len(pictures())
    for turn in range(-files, ROUNDS):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            times = await paths[name].single(turn // len(names) % files, IN_A_ROW)
            if turn >= 0:  # the turns before the first are not counted
                spent[name] += times
    summary = {name: percentiles(times) for name, times in spent.items()}
    keys = {f"{name}_{percent}_ms": of[percent] for name, of in summary.items() for percent in ("p50", "p99")}
    floor = 1.25 * keys["bare_p50_ms"] + keys["transport_p50_ms"]
    return {**keys, "service_over_floor": round(keys["service_p50_ms"] / floor, 3)}


def _steps(timings: Sequence[vision_pb2.Timing]) -> dict[str, float]:
    """Where the service says its time went, at the median."""
    steps = ("preprocess_ms", "queue_ms", "compute_ms")
    return {f"service_{step}": round(median(getattr(timing, step) for timing in timings), 3) for step in steps}


async def _throughput(
    bare: BareModel, services: Mapping[str, Remote], progress: Progress
) -> dict[str, dict[str, float]]:
    """Images a second for each number of callers, medians."""
    progress("vision: looking for the best way to batch by hand")
    ways = [(size, threaded) for size in SIZES for threaded in (False, True)]
    tried = {way: [await bare.batched(*way, TRY_S) for _ in range(2)] for way in ways}
    best = max(ways, key=lambda way: max(tried[way]))
    rows: dict[str, dict[str, float]] = {}
    for callers in CALLERS:
        progress(f"vision: throughput with {callers} callers, {LOADS} times each, in turns")
        measures: dict[str, Measure] = {"bare_batched": partial(bare.batched, *best, LOAD_S)}
        measures |= {name: partial(service.loaded, callers, LOAD_S) for name, service in services.items()}
        rows[str(callers)] = {**await _in_turns(measures), "bare_batch": best[0], "bare_threaded": best[1]}
    return rows


async def _in_turns(measures: Mapping[str, Measure]) -> dict[str, float]:
    """The median of each; who is first changes from turn to turn."""
    found: dict[str, list[float]] = {name: [] for name in measures}
    names = list(measures)
    for turn in range(-1, LOADS):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            rate = await measures[name]()
            if turn >= 0:
                found[name].append(rate)
    return {name: round(median(rates), 1) for name, rates in found.items()}


def table(result: Mapping[str, Any]) -> Table:
    """The result, for people."""
    single, samples = result["single"], result["samples"]
    table = Table("what", "p50, ms", "p99, ms", "images/s", title="The vision service")
    for name, title in (
        ("bare_hot", "the model itself, without a rest between pictures"),
        ("bare", "the model itself, one picture"),
        ("transport", "a call that looks at nothing"),
        ("service", "the service, one picture"),
    ):
        table.add_row(title, f"{single[f'{name}_p50_ms']:.2f}", f"{single[f'{name}_p99_ms']:.2f}", "")
    for callers, row in result["throughput"].items():
        table.add_section()
        table.add_row(f"the model itself, batches of {row['bare_batch']}", "", "", f"{row['bare_batched']:.0f}")
        for name, title in (
            ("service", "the service, with batches"),
            ("service_unbatched", "the service, one by one"),
            ("service_8_together", "the service, 8 pictures in a request"),
            ("transport", "calls that look at nothing"),
        ):
            table.add_row(f"{title}, {callers} callers", "", "", f"{row[name]:.0f}")
    table.add_section()
    apart = result["larger_model"]
    for name, title in (("bare", "a larger model itself"), ("service", "the service with it")):
        of = apart["single"]
        rates = ", ".join(f"{apart['throughput'][str(callers)][_BATCHED[name]]:.0f}" for callers in CALLERS)
        table.add_row(title, f"{of[f'{name}_p50_ms']:.2f}", f"{of[f'{name}_p99_ms']:.2f}", rates)
    for size in ("batch_1_ms", "batch_32_ms"):
        table.add_section()
        for row in result["engines"]:
            title = f"{row['file']}, {row['device']}, {row['precision']}, {size.split('_')[1]} at once"
            table.add_row(title, f"{row[size]:.2f}", "", "")
    table.caption = (
        f"The service takes {single['service_over_floor']:.2f} of 1.25 × the model + a call: "
        f"{single['service_preprocess_ms']:.2f} ms preparing, {single['service_queue_ms']:.2f} waiting, "
        f"{single['service_compute_ms']:.2f} computing. {samples['single']} pictures per path, medians of "
        f"{samples['throughput']} measurements of {samples['seconds_each']:.0f} s."
    )
    return table
