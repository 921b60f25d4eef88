"""Scores become probabilities, and the most probable classes come first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from hedgerow.channel import MAX_MESSAGE_BYTES
from hedgerow.vision.v1 import vision_pb2
from services.runtime.errors import InvalidInput
from services.vision.errors import EngineFailed
from services.vision.model import Row, Timing, VisionModel
from services.vision.outputs import MAX_LABELS, Named, check_top_k, labels
from tests.unit.vision.fake_engine import manifest

IMAGENET_21K = 21_841


def model(*names: str, **changes: Any) -> VisionModel:
    """A model with only its manifest and labels."""
    described = manifest(outputs={"logits": "out"}, **changes)
    return cast(VisionModel, SimpleNamespace(manifest=described, labels=names))


def row(*scores: float) -> Row:
    return Row({"out": np.array(scores, np.float32)}, Timing())


def test_classes_of_one_name_differ_by_their_index() -> None:
    found = labels(model("crane", "cat", "crane"), row(2, 0, 1), 3)
    assert [(each.index, each.name) for each in found] == [(0, "crane"), (2, "crane"), (1, "cat")]


@pytest.mark.parametrize(
    ("changes", "scores", "expected"),
    [
        ({}, (1_000, 1_000, -1_000), [Named(0, "a", 0.5), Named(1, "b", 0.5), Named(2, "c", 0.0)]),
        ({"activation": "sigmoid"}, (0, 1_000, -1_000), [Named(1, "b", 1.0), Named(0, "a", 0.5), Named(2, "c", 0.0)]),
    ],
    ids=["a softmax shares one between all classes", "a sigmoid judges each class separately"],
)
def test_scores_become_probabilities(changes: dict[str, str], scores: tuple[int, ...], expected: list[Named]) -> None:
    assert labels(model("a", "b", "c", **changes), row(*scores), 3) == expected


@pytest.mark.parametrize("top_k", [1, 2, 5, IMAGENET_21K])
def test_the_best_of_many_classes_are_those_of_a_full_sort(top_k: int) -> None:
    scores = np.random.default_rng(0).integers(0, 500, IMAGENET_21K) / 100  # so that many are equal
    found = labels(model(*map(str, range(IMAGENET_21K))), row(*scores), top_k)
    assert [each.index for each in found] == np.argsort(-scores, kind="stable")[:top_k].tolist()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_scores_that_are_no_numbers_are_a_failure_of_the_engine(bad: float) -> None:
    with pytest.raises(EngineFailed, match="not a number"):
        labels(model("a", "b"), row(0, bad), 1)


def test_an_answer_is_bounded_in_all_its_labels_together() -> None:
    large = model(*map(str, range(IMAGENET_21K)))
    assert check_top_k(IMAGENET_21K, large, 3) == IMAGENET_21K
    with pytest.raises(InvalidInput, match="top_k: at most 1024 for 64 images in one request, got 1025"):
        check_top_k(1_025, large, 64)
    label = vision_pb2.Label(index=IMAGENET_21K, name="hen-of-the-woods, hen of the woods", score=0.5)
    result = vision_pb2.Labels(labels=[label] * (MAX_LABELS // 64))
    assert vision_pb2.ClassifyResponse(results=[result] * 64).ByteSize() < MAX_MESSAGE_BYTES
