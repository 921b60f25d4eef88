"""What a model's outputs mean: labels and vectors."""

from __future__ import annotations

import numpy as np

from services.runtime.errors import InvalidInput
from services.vision.errors import EngineFailed
from services.vision.model import Model, Row
from services.vision.pictures import Array


def check_labels(model: Model) -> None:
    """The model names classes."""
    _check_pictures(model)
    if not model.labels:
        raise InvalidInput("model", "one that has labels", model.name)


def check_embedding(model: Model) -> None:
    """The model makes embeddings."""
    _check_pictures(model)
    if not model.embedding_size:
        raise InvalidInput("model", "one that makes embeddings", model.name)


def check_top_k(top_k: int | None, model: Model) -> int:
    """How many labels to give; 1 when not set."""
    if top_k is None:
        return 1
    if not 1 <= top_k <= len(model.labels):
        raise InvalidInput("top_k", f"1 to {len(model.labels)}, which is all that {model.name} has", top_k)
    return top_k


def labels(model: Model, row: Row, top_k: int) -> list[tuple[str, float]]:
    """Names and probabilities, best first; at most all there are. Equal ones in the model's order."""
    scores = _finite(row.outputs[model.manifest.scores or ""])
    if "logits" in model.manifest.outputs:
        scores = np.exp(scores - scores.max())
        scores /= scores.sum()
    best = np.argsort(-scores, kind="stable")[:top_k]
    return [(model.labels[place], float(scores[place])) for place in best]


def embedding(model: Model, row: Row) -> Array:
    """The vector at unit length."""
    vector = _finite(row.outputs[model.manifest.outputs["embedding"]])
    length = np.linalg.norm(vector)
    if not length:
        raise EngineFailed(f"{model.name}: a vector that has a direction, got zeros")
    unit: Array = vector / length
    return unit


def _check_pictures(model: Model) -> None:
    if not model.manifest.preprocessing:
        raise InvalidInput("model", "one that takes images", model.name)


def _finite(values: Array) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    numbers = values.astype(np.float64)
    if not np.isfinite(numbers).all():  # fp16 that ran over, a damaged file
        raise EngineFailed("the model's result is not a number")
    return numbers
