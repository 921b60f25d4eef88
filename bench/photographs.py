"""How many photographs a second the vision service classifies with a public model, beside a loop written by hand.

EfficientNet-Lite0 and one JPEG of 451 x 300 pixels, again and again. The loop (`bench.vision.plain`) does the same
decoding and preprocessing with Pillow and NumPy, and calls ONNX Runtime on batches as large as the service has callers.
Loop and service have a process each and are measured in turns; the service's client shares their cores.
"""

from __future__ import annotations

import json
import sys
import tempfile
from asyncio import create_subprocess_exec
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from bench.vision.paths import REPOSITORY, Services
from launcher import catalog

MODEL = "efficientnet-lite0"
PHOTOGRAPH = REPOSITORY / "tests" / "photographs" / "cat.jpg"
CALLERS = (1, 8, 32)
TURNS, TURN_S = 9, 2.0
REFUSED = (catalog.CatalogError,)
Progress = Callable[[str], None]


async def run(progress: Progress) -> dict[str, Any]:
    """Start loop and service, measure them in turns, stop them. About two minutes."""
    models = catalog.path(MODEL)
    with tempfile.TemporaryDirectory() as folder:
        progress("photographs: starting the loop and the service")
        async with _loop(models / MODEL / "model.onnx") as loop, Services(Path(folder)) as services:
            service = (await services.models(models)).with_pictures([PHOTOGRAPH])
            await service.loaded(8, TURN_S)
            rates: dict[str, Any] = {}
            for callers in CALLERS:
                progress(f"photographs: {callers} callers, {TURNS} turns")
                turns = [(await _rate(loop, callers), await service.loaded(callers, TURN_S)) for _ in range(TURNS)]
                rates[str(callers)] = _summary(turns)
    return {"model": MODEL, "turns": TURNS, "seconds": TURN_S, "rates": rates}


def _summary(turns: list[tuple[float, float]]) -> dict[str, float]:
    """Medians; the ratio is that of neighbours in time."""
    loops, services = zip(*turns, strict=True)
    ratios = [service / loop for loop, service in turns]
    return {
        "loop": round(median(loops), 1),
        "service": round(median(services), 1),
        "ratio": round(median(ratios), 3),
        "least_ratio": round(min(ratios), 3),
        "most_ratio": round(max(ratios), 3),
    }


@asynccontextmanager
async def _loop(model: Path) -> AsyncIterator[Process]:
    arguments = ("-m", "bench.vision.plain", str(model), str(PHOTOGRAPH))
    process = await create_subprocess_exec(sys.executable, *arguments, stdin=PIPE, stdout=PIPE)
    assert process.stdin
    assert process.stdout
    try:
        await process.stdout.readline()
        yield process
    finally:
        process.stdin.close()
        await process.wait()


async def _rate(loop: Process, size: int) -> float:
    assert loop.stdin
    assert loop.stdout
    loop.stdin.write(json.dumps({"size": size, "seconds": TURN_S}).encode() + b"\n")
    return float(await loop.stdout.readline())


def table(result: Mapping[str, Any]) -> Table:
    """The result, for people."""
    title = f"{result['model']}, images/s: medians of {result['turns']} turns of {result['seconds']:.0f} s"
    table = Table("callers", "loop, batches of as many", "service", "service / loop", "least to most", title=title)
    for callers, row in result["rates"].items():
        spread = f"{row['least_ratio']:.2f}-{row['most_ratio']:.2f}"
        table.add_row(callers, f"{row['loop']:.0f}", f"{row['service']:.0f}", f"{row['ratio']:.2f}", spread)
    return table
