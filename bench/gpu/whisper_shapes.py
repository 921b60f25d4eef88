"""Whispers of public sizes with random weights: how long their encoder and a token of their decoder take.

Random weights never end a text, so each run decodes a fixed number of tokens.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import ctranslate2
import numpy as np

from tests.random_whisper import Shape, write_whisper

SHAPES = {
    "small": Shape(width=768, heads=12, encoder_layers=12, decoder_layers=12, feed_forward=3_072),
    "large-v3-turbo": Shape(128, width=1_280, heads=20, encoder_layers=32, decoder_layers=4, feed_forward=5_120),
}
FRAMES, FEW, MANY = 3_000, 8, 72


def timed_shape(name: str, device: str, quick: bool) -> dict[str, Any]:
    """Milliseconds of the encoder and of a decoded token, by windows at once. `quick`: of the tests' tiny shape."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        write_whisper(Path(folder), Shape() if quick else SHAPES[name])
        made = time.monotonic()
        kind = "float16" if device == "cuda" else "float32"
        model: Any = ctranslate2.models.Whisper(folder, device=device, compute_type=kind)
        found: dict[str, Any] = {"made_s": round(made - began, 1), "loaded_s": round(time.monotonic() - made, 1)}
        for batch in (1,) if quick else (1, 8, 32):
            found[f"in {batch}"] = _times(model, batch, 2 if quick else 5)
        return found


def _times(model: Any, batch: int, rounds: int) -> dict[str, float]:
    noise = np.random.default_rng(0).normal(-0.5, 0.1, (batch, model.n_mels, FRAMES)).astype(np.float32)
    features = ctranslate2.StorageView.from_array(noise)
    encoded = model.encode(features)

    def decode(tokens: int) -> Callable[[], Any]:
        prompt = [50_258, 50_259, 50_359, 50_363]  # start, English, transcribe, no times
        return lambda: model.generate(
            encoded, [prompt] * batch, beam_size=1, max_length=len(prompt) + tokens, suppress_tokens=[50_257]
        )

    encoding, few, many = (
        _median(each, rounds) for each in (lambda: model.encode(features), decode(FEW), decode(MANY))
    )
    return {"encoder_ms": round(encoding, 2), "token_ms": round((many - few) / (MANY - FEW), 3), "many_ms": round(many)}


def _median(work: Callable[[], Any], rounds: int) -> float:
    work()
    return median(timed(work) for _ in range(rounds)) * 1_000


def timed(work: Callable[[], Any]) -> float:
    """Seconds. CTranslate2's calls return when the GPU is done."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
