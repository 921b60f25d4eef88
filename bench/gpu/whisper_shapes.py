"""Whispers of public sizes with random weights: how long their encoder and a token of their decoder take.

Random weights never end a text, so each run decodes a fixed number of tokens.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from shutil import copy
from statistics import median
from typing import Any

import ctranslate2
import numpy as np

SHAPES = {  # layers of encoder and decoder, width, heads, mel bands
    "small": (12, 12, 768, 12, 80),
    "large-v3-turbo": (32, 4, 1_280, 20, 128),
}
TINY = (2, 2, 128, 2, 80)
FRAMES, FEW, MANY = 3_000, 8, 72


def timed_shape(name: str, like: Path, device: str, quick: bool) -> dict[str, Any]:
    """Milliseconds of the encoder and of a decoded token, by windows at once. `like`: a Whisper with the vocabulary."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        write(TINY if quick else SHAPES[name], like, Path(folder), device)
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
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return median(took) * 1_000


def write(shape: tuple[int, int, int, int, int], like: Path, folder: Path, device: str) -> None:
    """Write a model in CTranslate2's format, in float16."""
    import torch
    from ctranslate2.converters.transformers import WhisperLoader
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    encoder, decoder, width, heads, mels = shape
    words = json.loads((like / "vocabulary.json").read_text())
    config = WhisperConfig(
        vocab_size=len(words), num_mel_bins=mels, d_model=width, encoder_layers=encoder, decoder_layers=decoder,
        encoder_attention_heads=heads, decoder_attention_heads=heads, encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
    )  # fmt: skip
    with torch.device(device), torch.no_grad():
        model = WhisperForConditionalGeneration(config).eval().half().cpu()
    spec: Any = WhisperLoader().get_model_spec(model)
    spec.register_vocabulary(words)
    known = json.loads((like / "config.json").read_text())
    for key in ("suppress_ids", "suppress_ids_begin", "lang_ids"):
        setattr(spec.config, key, known.get(key, []))
    spec.config.alignment_heads = [[decoder - 1, head] for head in range(heads // 2)]
    spec.validate()
    spec.optimize(quantization="float16")
    spec.save(str(folder))
    copy(like / "tokenizer.json", folder)
