"""What a model's outputs mean: labels and vectors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.runtime.errors import InvalidInput
from services.vision.errors import EngineFailed
from services.vision.manifest import Activation
from services.vision.model import Row, VisionModel
from services.vision.pictures import Array

MAX_LABELS = 65_536  # of one answer: some 3 MB
_Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Named:
    """A class: its index among the model's outputs, its name, which need not be its own, and its probability."""

    index: int
    name: str
    score: float


def check_labels(model: VisionModel) -> None:
    """The model names classes."""
    _check_pictures(model)
    if not model.labels:
        raise InvalidInput("model", "one that has labels", model.name)


def check_embedding(model: VisionModel) -> None:
    """The model makes embeddings."""
    _check_pictures(model)
    if not model.embedding_size:
        raise InvalidInput("model", "one that makes embeddings", model.name)


def check_top_k(top_k: int | None, model: VisionModel, images: int = 1) -> int:
    """How many labels to give for each image: 1 when not set, at most all that the model has. Raises `InvalidInput`
    where the answer would be longer than `MAX_LABELS` labels."""
    if top_k is None:
        return 1
    if top_k < 1:
        raise InvalidInput("top_k", "1 or more", top_k)
    given = min(top_k, len(model.labels))
    if given * images > MAX_LABELS:
        raise InvalidInput("top_k", f"at most {MAX_LABELS // images} for {images} images in one request", top_k)
    return given


def labels(model: VisionModel, row: Row, top_k: int) -> list[Named]:
    """The `top_k` most probable classes, best first. Of equally probable ones, the lower index is first."""
    scores = _probabilities(_finite(row.outputs[model.manifest.scores or ""]), model.manifest.activated)
    # Sorting all of 21,841 scores takes 1.2 ms; finding the few that matter takes less than 0.1 ms.
    least = np.partition(scores, -top_k)[-top_k]
    candidates = np.flatnonzero(scores >= least)
    best = candidates[np.argsort(-scores[candidates], kind="stable")][:top_k]
    return [Named(int(index), model.labels[index], float(scores[index])) for index in best]


def embedding(model: VisionModel, row: Row) -> Array:
    """The vector at unit length."""
    vector = _finite(row.outputs[model.manifest.outputs["embedding"]])
    length = np.linalg.norm(vector)
    if not length:
        raise EngineFailed(f"{model.name}: a vector that has a direction, got zeros")
    unit: Array = vector / length
    return unit


def _check_pictures(model: VisionModel) -> None:
    if not model.manifest.preprocessing:
        raise InvalidInput("model", "one that takes images", model.name)


def _probabilities(scores: _Scores, activation: Activation) -> _Scores:
    if activation == "sigmoid":
        return np.asarray(0.5 * (1 + np.tanh(0.5 * scores)))  # as 1 / (1 + exp(-x)), which overflows
    if activation == "softmax":
        scores = np.exp(scores - scores.max())
        return np.asarray(scores / scores.sum())
    return scores


def _finite(values: Array) -> _Scores:
    numbers = values.astype(np.float64)
    if not np.isfinite(numbers).all():  # fp16 that ran over, a damaged file
        raise EngineFailed("the model's result is not a number")
    return numbers
