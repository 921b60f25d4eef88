"""Text embedding engines: all-MiniLM-L6-v2 in one of two runtimes, behind one protocol.

CTranslate2 in int8 is the default: on one core a short question takes a sixth of the time that sentence-transformers
(the reference) needs, in a fifth of the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, Protocol

import ctranslate2
import numpy as np

from services.cache import conversion
from services.cache.conversion import MODEL, TOKENIZER, NoModel
from services.cache.first_use import FirstUse
from services.cache.tokens import CHARACTERS_PER_TOKEN, Tokens
from services.cache.vectors import Vector

DIMENSION = 384
LANGUAGES = frozenset({"en"})  # of all-MiniLM-L6-v2


class Engine(Protocol):
    """Embeds texts, on the thread that calls it."""

    name: str  # vectors of different names must not be compared
    languages: frozenset[str]  # that its model was trained on, ISO 639-1; empty: nearly all
    max_batch: int  # how many texts it had best be given at once
    max_characters: int  # of a text, before it is looked at

    def embed_batch(self, texts: Sequence[str]) -> list[Vector | None]:
        """A unit vector for each text; None for a text longer than the engine's limit."""

    def length(self, text: str) -> int:
        """How many of its own pieces a text has, without those that mark its ends. May be asked on any thread."""

    def unseen(self, asked: str, stored: str) -> str:
        """How two texts differ in what their vectors cannot show, for people; empty when they do not."""


Kind = Literal["ctranslate2", "sentence_transformers"]


def load(kind: Kind, cache: Path, max_tokens: int, model: Path | None = None) -> Engine:
    """A warm engine. CTranslate2 takes the folder `model`; without one, the first start converts the model into
    `cache`, which takes some seconds. Raises `NoModel`."""
    engine: Engine
    if kind == "ctranslate2":
        folder = whole(model) if model else conversion.converted(cache.expanduser())
        engine = CTranslate2Engine(folder, max_tokens)
    else:
        engine = SentenceTransformersEngine(max_tokens)
    engine.embed_batch(["What is the capital of France?"])
    return engine


def whole(model: Path) -> Path:
    """A folder that has all of a model. Raises `NoModel`."""
    model = model.expanduser()
    if missing := [name for name in ("model.bin", TOKENIZER) if not (model / name).is_file()]:
        names = ", ".join(missing)
        raise NoModel(f"model: {model} has no {names}", outline=f"model: its folder has no {names}")
    return model


class CTranslate2Engine:
    """The encoder in int8 on one core, and mean pooling over its last layer.

    One text at a time. With padding, a text's vector is another than alone (cosine down to 0.997: small differences
    change what is rounded to eight bits), and 16 questions together take up to a tenth less time than one by one. Only
    texts of one length come out as alone: sixteen take 0.66 ms each in place of 1.05, but of 16 real questions too few
    have the same length to gain by it (ADR 12). The first would wait for the last either way.
    """

    name, languages = f"{MODEL} ctranslate2 int8", LANGUAGES
    max_batch = 1

    def __init__(self, model: Path, max_tokens: int):
        """`model` is a folder made by `conversion.convert`."""
        self._tokens = Tokens(model / TOKENIZER, max_tokens)
        self.unseen, self.length = self._tokens.unseen, self._tokens.length
        self.max_characters = self._tokens.max_characters
        self._encoder = ctranslate2.Encoder(str(model), device="cpu", intra_threads=1, inter_threads=1)

    def embed_batch(self, texts: Sequence[str]) -> list[Vector | None]:
        return [self._embed(text) for text in texts]

    def _embed(self, text: str) -> Vector | None:
        ids = self._tokens.ids(text)
        if ids is None:
            return None
        output = self._encoder.forward_batch([ids])
        mean = np.array(output.last_hidden_state)[0].mean(axis=0, dtype=np.float32)  # one text: no padding to mask
        vector: Vector = mean / np.linalg.norm(mean)
        return vector


class SentenceTransformersEngine:
    """The reference: the model as its authors run it, in float32 on PyTorch."""

    name, languages = f"{MODEL} sentence-transformers float32", LANGUAGES
    max_batch = 16

    def __init__(self, max_tokens: int):
        model = conversion.packaged()
        import torch
        from sentence_transformers import SentenceTransformer

        torch.set_num_threads(1)
        self._tokens = Tokens(model / TOKENIZER, max_tokens)
        self.unseen, self.length = self._tokens.unseen, self._tokens.length
        self.max_characters = self._tokens.max_characters
        self._model = SentenceTransformer(str(model), device="cpu")

    def embed_batch(self, texts: Sequence[str]) -> list[Vector | None]:
        fitting = [text for text in texts if self._tokens.ids(text) is not None]
        if not fitting:
            return [None] * len(texts)
        rows = self._model.encode(fitting, normalize_embeddings=True, show_progress_bar=False)
        vectors = dict(zip(fitting, rows, strict=True))
        return [vectors[text].copy() if text in vectors else None for text in texts]  # no view that keeps all of them


class LateEngine:
    """An engine that its first use loads (`FirstUse`), on the thread of that use."""

    def __init__(self, kind: Kind, max_tokens: int, load: Callable[[], Engine]):
        of = CTranslate2Engine if kind == "ctranslate2" else SentenceTransformersEngine
        self.name, self.languages, self.max_batch = of.name, of.languages, of.max_batch
        self.max_characters = max_tokens * CHARACTERS_PER_TOKEN
        self._loaded = FirstUse("the embedding model", load)

    def embed_batch(self, texts: Sequence[str]) -> list[Vector | None]:
        return self._loaded().embed_batch(texts)

    def length(self, text: str) -> int:
        return self._loaded().length(text)

    def unseen(self, asked: str, stored: str) -> str:
        return self._loaded().unseen(asked, stored)
