"""The floor: the demo vision model as a script would use it, in a process of its own, with no service around it.

It prepares pictures and calls the engine with the vision service's own functions, so that what the service adds is the
price of being one. Reads `{"do": name, …}` lines and writes a line with the result of each. The first line it writes is
`{}`, once the model is loaded and warm. Its arguments are the model's folder, the threads of a call, and the
pictures.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.vision import manifest as manifests
from services.vision.config import VisionSettings
from services.vision.engine import Engine
from services.vision.engines import ArraySpec, open_engine
from services.vision.errors import BadModel
from services.vision.files import Source
from services.vision.manifest import Manifest
from services.vision.pictures import decode, fit, normalize

SIZES = (1, 32)  # of the batches that engines are compared with
TURNS = 100  # of each
_DEFAULTS = VisionSettings()


class Bare:
    """The model of a folder, and pictures to show it."""

    def __init__(self, folder: Path, threads: int, pictures: Sequence[bytes]):
        self._folder, self._threads, self._pictures = folder, threads, pictures
        self._manifest, _ = manifests.read(folder)
        self._engine = _open(self._manifest, threads)
        self._pool = ThreadPoolExecutor(_DEFAULTS.decode_threads)

    def single(self, picture: int, count: int) -> list[float]:
        """Milliseconds of each of so many pictures, one after the other."""
        spent = []
        for _ in range(count):
            began = time.perf_counter()
            self._compute([self._prepare(self._pictures[picture])])
            spent.append((time.perf_counter() - began) * 1000)
        return spent

    def batched(self, size: int, threaded: bool, seconds: float) -> float:
        """Images a second of a loop that prepares a batch and computes it. `threaded`: prepares in the service's
        number of threads."""
        pictures, done, began = cycle(self._pictures), 0, time.perf_counter()
        prepare: Callable[..., Iterator[NDArray[np.generic]]] = self._pool.map if threaded else map
        while (spent := time.perf_counter() - began) < seconds:
            self._compute(list(prepare(self._prepare, islice(pictures, size))))
            done += size
        return done / spent

    def engines(self) -> list[dict[str, Any]]:
        """The model's files in every precision that this machine has, each with the milliseconds of a batch."""
        rows = []
        for file in sorted(self._folder.glob("model.*")):
            quantized = ".int8." in file.name
            for precision in ("int8",) if quantized else ("fp32", "bf16", "fp16"):
                manifest = self._manifest.model_copy(update={"file": file, "precision": precision})
                try:
                    engine = _open(manifest, self._threads)
                except BadModel:  # no model, or not in this precision
                    continue
                rows.append({"file": file.name, "device": engine.device, "precision": precision, **self._speed(engine)})
                engine.close()
        return rows

    def _speed(self, engine: Engine) -> dict[str, float]:
        speeds = {}
        for size in SIZES:
            inputs = {self._manifest.input.name: np.zeros((size, *self._manifest.input.shape), np.float32)}
            times = []
            for _ in range(TURNS + TURNS // 5):
                began = time.perf_counter()
                engine.run(inputs)
                times.append((time.perf_counter() - began) * 1000)
            speeds[f"batch_{size}_ms"] = round(median(times[-TURNS:]), 3)
        return speeds

    def _prepare(self, data: bytes) -> NDArray[np.generic]:
        wanted = self._manifest.preprocessing
        assert wanted
        picture = decode(data, _DEFAULTS.max_pixels, max(wanted.resized))
        return normalize(fit(picture, wanted), wanted, self._manifest.input.dtype)

    def _compute(self, items: Sequence[NDArray[np.generic]]) -> None:
        scores = self._engine.run({self._manifest.input.name: np.stack(items)})[self._manifest.scores or ""]
        scores.argmax(-1)


def _open(manifest: Manifest, threads: int) -> Engine:
    inputs = [ArraySpec(manifest.input.name, manifest.input.shape, manifest.input.dtype)]
    outputs = list(manifest.outputs.values())
    source = Source.of(manifest.file)
    return open_engine(source, manifest.device, manifest.precision, inputs, outputs, threads)


def main() -> None:
    """Serve the lines of standard input."""
    bare = Bare(Path(sys.argv[1]), int(sys.argv[2]), [Path(name).read_bytes() for name in sys.argv[3:]])
    bare.single(0, 100)
    bare.batched(32, False, 0.2)
    print(json.dumps({}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(getattr(bare, request.pop("do"))(**request)), flush=True)


if __name__ == "__main__":
    main()
