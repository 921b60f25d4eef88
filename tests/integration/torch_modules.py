"""Models that the vision engines must get along with, as torch has them."""

from __future__ import annotations

import torch


class Picky(torch.nn.Module):
    """Fails on ones."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        if bool(image.sum() > 0):
            raise ValueError("secret")
        return image * 1


class Flat(torch.nn.Module):
    """Loses the batch."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return image.flatten()


class Named(torch.nn.Module):
    """Answers with a dictionary."""

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"other": image, "same": image + 1}
