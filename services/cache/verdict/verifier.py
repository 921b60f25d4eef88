"""A cross-encoder that reads both questions at once: the embedder's own network, trained on pairs, in int8.

Where the embedding sees each text alone, it sees which word answers to which. It takes 2 to 3 ms a pair on one core, so
it is asked of the nearest candidates alone (Nogueira, Cho, Passage Re-ranking with BERT, arXiv 1901.04085).
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import ctranslate2
import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

MODEL, HEAD, TOKENIZER = "model.bin", "head.npy", "tokenizer.json"
MAX_TOKENS = 64  # of each text; what is longer is not verified


class Verifier(Protocol):
    """Reads pairs, on the thread that calls it."""

    def logit(self, asked: str, stored: str) -> float | None:
        """How sure it is that both ask the same, 0 for even odds; None where a text is too long for it."""


class CrossEncoder:
    """The verifier in a folder that `hedgerow cache train` made. Its head reads the first piece of the last layer and
    the mean of all of them."""

    def __init__(self, folder: Path):
        self._pieces = PairTokens(folder / TOKENIZER)
        self._head: NDArray[np.float32] = np.load(folder / HEAD, allow_pickle=False)  # shape (2 * width + 1,)
        self._encoder = ctranslate2.Encoder(str(folder), device="cpu", intra_threads=1, inter_threads=1)

    def logit(self, asked: str, stored: str) -> float | None:
        pair = self._pieces.pair(asked, stored)
        if pair is None:
            return None
        ids, kinds = pair
        output = self._encoder.forward_batch([ids], token_type_ids=[kinds])
        states = np.array(output.last_hidden_state)[0]
        read = np.concatenate([states[0], states.mean(axis=0, dtype=np.float32), [1.0]])
        return float(read @ self._head)


class PairTokens:
    """Two texts as one sequence: [CLS] a [SEP] b [SEP]."""

    def __init__(self, file: Path):
        """`file` is the model's `tokenizer.json`."""
        self._model = Tokenizer.from_file(str(file))
        self._model.no_padding()
        self._model.no_truncation()

    def pair(self, a: str, b: str) -> tuple[list[int], list[int]] | None:
        """(the pieces, 0 for each of the first text and 1 for each of the second); None where one is too long."""
        encoding = self._model.encode(a, b)
        kinds = list(encoding.type_ids)
        longest = max(kinds.count(0) - 2, kinds.count(1) - 1)
        return (list(encoding.ids), kinds) if longest <= MAX_TOKENS else None
