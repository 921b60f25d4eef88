"""The mean of checkpoints of one model, which are stages of one training: often better than each.

    python mean_weights.py OUT CHECKPOINT CHECKPOINT...

Writes OUT/model.safetensors in bf16. Source: Wortsman et al., 2022, https://arxiv.org/abs/2203.05482.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("checkpoints", type=Path, nargs="+")
    args = parser.parse_args()
    stages = [load_file(folder / "model.safetensors") for folder in args.checkpoints]
    mean = {
        name: torch.stack([stage[name].float() for stage in stages]).mean(0).to(torch.bfloat16) for name in stages[0]
    }
    args.out.mkdir(parents=True, exist_ok=True)
    save_file(mean, args.out / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
