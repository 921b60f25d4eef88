"""Train the two small classifiers of text on a CPU: prompt injections, and questions that are complex.

    python train_text.py [--seed N] [--count N]

Writes services/gateway/guard/injection.weights and services/runtime/complexity.weights: logistic regressions over the
very features that serve (`services/runtime/linear_model.py`), by Adagrad with an L2 penalty, in signed bytes. About a
minute of one core; the same seed gives the same bytes. `hedgerow bench guard` measures
them on `bench/guard/*.jsonl`, which no classifier is trained on.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import text_corpus
from services.runtime import complexity, linear_model

TASKS = {
    "injection": (text_corpus.injections, linear_model.features, ROOT / "services/gateway/guard/injection.weights"),
    "complexity": (text_corpus.questions, complexity.features, ROOT / "services/runtime/complexity.weights"),
}
MODELS = 5
EPOCHS, RATE, PENALTY, HELD_BACK = 6, 0.5, 2e-5, 0.1


def train(rows: list[np.ndarray], labels: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """Weights and bias."""
    weights, squares = np.zeros(linear_model.BUCKETS), np.full(linear_model.BUCKETS, 1e-6)
    bias, bias_squares = 0.0, 1e-6
    for _ in range(EPOCHS):
        for at in rng.permutation(len(rows)):
            row = rows[at]
            value = 1 / np.sqrt(len(row) or 1)
            error = 1 / (1 + np.exp(-(weights[row].sum() * value + bias))) - labels[at]
            gradient = error * value + PENALTY * weights[row]
            squares[row] += gradient**2
            weights[row] -= RATE * gradient / np.sqrt(squares[row])
            bias_squares += error**2
            bias -= RATE * error / np.sqrt(bias_squares)
    return weights, bias


def save(file: Path, weights: np.ndarray, bias: float, told: dict[str, object]) -> None:
    limit = np.percentile(np.abs(weights[weights != 0]), 99.9)
    step = float(limit / 127)
    small = np.clip(np.round(weights / step), -127, 127).astype(np.int8)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(json.dumps({"step": step, "bias": float(bias), **told}).encode() + b"\n" + small.tobytes())


def main(tasks: Iterable[str], seed: int, count: int) -> None:
    for name in tasks:
        written, features, file = TASKS[name]
        texts = list(dict.fromkeys(written(random.Random(seed), count)))
        rows = [np.fromiter(features(text), int) for text, _ in texts]
        labels = np.array([float(label) for _, label in texts])
        back = int(len(rows) * HELD_BACK)
        # The mean of several, each in an order of its own: one alone depends much on which texts came last.
        trained = [train(rows[back:], labels[back:], np.random.default_rng(seed + each)) for each in range(MODELS)]
        weights, bias = (
            np.mean([weights for weights, _ in trained], axis=0),
            float(np.mean([bias for _, bias in trained])),
        )
        save(file, weights, bias, {"trained_on": len(rows) - back, "seed": seed})
        model = linear_model.load(file)
        right = [
            (model.probability(set(row.tolist())) > 0.5) == bool(label)
            for row, label in zip(rows[:back], labels[:back], strict=True)
        ]
        print(f"{name}: {len(rows) - back} texts, {np.mean(right):.4f} right of {back} held back")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("tasks", nargs="*", default=list(TASKS))
    options.add_argument("--seed", type=int, default=7)
    options.add_argument("--count", type=int, default=40_000)
    given = options.parse_args()
    main(given.tasks or TASKS, given.seed, given.count)
