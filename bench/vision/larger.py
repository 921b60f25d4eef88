"""A model of a size that people use, for what the vision service costs over it: some 0.3 billion multiplications for a
picture of 128×128 pixels. Its weights are drawn at random, so it knows nothing; it only takes its time.
"""

from __future__ import annotations

from pathlib import Path

import torch
import yaml
from torch import nn

NAME, SIZE, CLASSES = "larger", 128, 10


def make(folder: Path) -> Path:
    """Write the model and its manifest into a folder of its own, and return that."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(),
        nn.Conv2d(64, 128, 3, 1, 1), nn.ReLU(), nn.Conv2d(128, 128, 3, 1, 1), nn.ReLU(),
        nn.Conv2d(128, 256, 3, 2, 1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, CLASSES), nn.Softmax(-1),
    ).eval()  # fmt: skip
    home = folder / NAME
    home.mkdir(parents=True)
    torch.onnx.export(
        model,
        (torch.zeros(2, 3, SIZE, SIZE),),
        home / "model.onnx",
        dynamo=True,
        dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=64)},),
        external_data=False,
        input_names=["image"],
        output_names=["probabilities"],
        verbose=False,
    )
    manifest = {
        "file": "model.onnx",
        "device": "cpu",
        "precision": "fp32",
        "input": {"name": "image", "shape": [3, SIZE, SIZE], "dtype": "float32"},
        "outputs": {"probabilities": "probabilities"},
        "labels": "labels.txt",
        "preprocessing": {"resize": [SIZE, SIZE], "fit": "stretch", "mean": [0.5] * 3, "std": [0.25] * 3},
        "batching": {"max_size": 32, "preferred": [4, 8, 16], "max_delay_ms": 2.0},
    }
    (home / "labels.txt").write_text("\n".join(f"class {number}" for number in range(CLASSES)) + "\n")
    (home / "model.yaml").write_text(yaml.safe_dump(manifest))
    return home
