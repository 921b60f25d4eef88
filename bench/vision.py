"""How many photographs a second the vision service classifies with a public model, beside a loop written by hand.

EfficientNet-Lite0 (`hedgerow models pull efficientnet-lite0`) and one JPEG of 451 x 300 pixels, again and again. The
loop does the same decoding and preprocessing with Pillow and NumPy, and calls ONNX Runtime on batches as large as the
service has callers. Both have a process each and are measured in turns; the service's client shares their cores.

`python -m bench.vision MODEL PICTURE` is the loop: it reads `{"size": …, "seconds": …}` lines and writes the images a
second for each. Its first line is `{}`, once the model is warm. ONNX Runtime has its default options.
"""

from __future__ import annotations

import asyncio
import io
import json
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench.asking import in_turns
from bench.cluster import Cluster, Progress, clustered
from hedgerow.vision.v1 import vision_pb2
from launcher import catalog

MODEL = "efficientnet-lite0"
PHOTOGRAPH = Path(__file__).parents[1] / "tests" / "photographs" / "cat.jpg"
CALLERS = (1, 8, 32)
TURNS, TURN_S = 9, 2.0
CHANNELS = 4  # a service takes only so many calls on one
REFUSED = (catalog.CatalogError,)
_CLASSIFY = "/hedgerow.vision.v1.VisionService/Classify"
_RESIZE, _CROP = 256, 224  # the model's card: the shorter side, then the centre
_MEAN, _STD = 0.498, 0.502
Rate = Callable[[int], Awaitable[float]]  # images a second of so many callers


async def run(progress: Progress) -> dict[str, Any]:
    """Start loop and service, measure them in turns, stop them. About two minutes."""
    models = catalog.path(MODEL)
    async with clustered(progress) as cluster:
        loop = await cluster.piped("bench.vision", str(models / MODEL / "model.onnx"), str(PHOTOGRAPH))
        await loop.stdout.readline()
        rates: dict[str, Rate] = {"loop": partial(_looped, loop), "service": await _service(cluster, models)}
        found = {}
        for callers in CALLERS:
            progress(f"{callers} callers, {TURNS} turns")
            ways = {name: partial(_turn, rate=rate, callers=callers) for name, rate in rates.items()}
            found[str(callers)] = _summary(await in_turns(ways, TURNS, 1))
    return {"model": MODEL, "turns": TURNS, "seconds": TURN_S, "callers": found}


async def _turn(number: int, rate: Rate, callers: int) -> float:
    return await rate(callers)


def _summary(turns: dict[str, list[float]]) -> dict[str, float]:
    """Medians; the ratios are of the same turn."""
    ratios = [service / loop for service, loop in zip(turns["service"], turns["loop"], strict=True)]
    return {
        **{name: round(median(rates), 1) for name, rates in turns.items()},
        "over_loop": round(median(ratios), 3),
        "least_over_loop": round(min(ratios), 3),
        "most_over_loop": round(max(ratios), 3),
    }


async def _looped(loop: Any, size: int) -> float:
    loop.stdin.write(json.dumps({"size": size, "seconds": TURN_S}).encode() + b"\n")
    return float(await loop.stdout.readline())


async def _service(cluster: Cluster, models: Path) -> Rate:
    """A vision service, with its own defaults."""
    process = await cluster.start("vision", "services.vision", models_dir=str(models))
    calls: list[Any] = [(await cluster.channel(process)).unary_unary(_CLASSIFY) for _ in range(CHANNELS)]
    image = vision_pb2.Image(data=PHOTOGRAPH.read_bytes())
    request = vision_pb2.ClassifyRequest(images=[image]).SerializeToString()

    async def rate(callers: int) -> float:
        done, began = 0, time.perf_counter()

        async def caller(number: int) -> None:
            nonlocal done
            while time.perf_counter() - began < TURN_S:
                await calls[number % CHANNELS](request, timeout=10)
                done += 1

        await asyncio.gather(*map(caller, range(callers)))
        return done / (time.perf_counter() - began)

    return rate


def main() -> None:
    """The loop."""
    import numpy as np
    import onnxruntime
    from PIL import Image

    session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
    data = Path(sys.argv[2]).read_bytes()
    (name,) = (entry.name for entry in session.get_inputs())

    def prepared() -> Any:
        picture = Image.open(io.BytesIO(data)).convert("RGB")
        scale = _RESIZE / min(picture.size)
        size = int(picture.width * scale), int(picture.height * scale)
        left, top = (round((side - _CROP) / 2) for side in size)
        picture = picture.resize(size, Image.Resampling.BICUBIC).crop((left, top, left + _CROP, top + _CROP))
        array = (np.asarray(picture, np.float32) / 255 - np.float32(_MEAN)) / np.float32(_STD)
        return np.ascontiguousarray(array.transpose(2, 0, 1))

    def rate(size: int, seconds: float) -> float:
        done, began = 0, time.perf_counter()
        while (spent := time.perf_counter() - began) < seconds:
            session.run(None, {name: np.stack([prepared() for _ in range(size)])})[0].argmax(-1)
            done += size
        return done / spent

    rate(8, 1.0)
    print(json.dumps({}), flush=True)
    for line in sys.stdin:
        print(json.dumps(rate(**json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
