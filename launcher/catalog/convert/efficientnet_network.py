"""EfficientNet-Lite0, written after the authors' TensorFlow code so that no downloaded code has to run.

https://github.com/tensorflow/tpu/tree/master/models/official/efficientnet/lite, under the Apache License 2.0: MBConv
blocks (https://arxiv.org/abs/1905.11946) without squeeze-and-excitation, with ReLU6. The names of the parameters are
those of the checkpoint.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

PIXELS = 224
_EPSILON = 1e-3  # of batch normalization, TensorFlow's
# (repeats, kernel, stride, expansion, channels in, channels out)
_BLOCKS = (
    (1, 3, 1, 1, 32, 16),
    (2, 3, 2, 6, 16, 24),
    (2, 5, 2, 6, 24, 40),
    (3, 3, 2, 6, 40, 80),
    (3, 5, 1, 6, 80, 112),
    (4, 5, 2, 6, 112, 192),
    (1, 3, 1, 6, 192, 320),
)
_FEATURES, _CLASSES = 1280, 1000


class _Same(nn.Conv2d):
    """A convolution with TensorFlow's padding "SAME", of sizes that the stride divides, as all are here: with a stride
    of 2, one more at the end than at the beginning."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        needed = self.kernel_size[0] - self.stride[0]
        around = (needed // 2, needed - needed // 2)
        return super().forward(functional.pad(images, around * 2))


def _convolution(channels_in: int, channels_out: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    return _Same(channels_in, channels_out, kernel, stride, groups=groups, bias=False)


class _Block(nn.Module):
    """Expand, filter each channel, project; added to its input where the shapes agree."""

    def __init__(self, kernel: int, stride: int, expansion: int, channels_in: int, channels_out: int):
        super().__init__()
        inner = channels_in * expansion
        self._expands, self._adds = expansion > 1, stride == 1 and channels_in == channels_out
        if self._expands:
            self._expand_conv = _convolution(channels_in, inner)
            self._bn0 = nn.BatchNorm2d(inner, _EPSILON)
        self._depthwise_conv = _convolution(inner, inner, kernel, stride, groups=inner)
        self._bn1 = nn.BatchNorm2d(inner, _EPSILON)
        self._project_conv = _convolution(inner, channels_out)
        self._bn2 = nn.BatchNorm2d(channels_out, _EPSILON)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found = functional.relu6(self._bn0(self._expand_conv(images))) if self._expands else images
        found = functional.relu6(self._bn1(self._depthwise_conv(found)))
        found = self._bn2(self._project_conv(found))
        return found + images if self._adds else found


class EfficientNetLite0(nn.Module):
    """(n, 3, 224, 224), normalized, to the classes' logits (n, 1000) and the features below them (n, 1280)."""

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem = _convolution(3, 32, 3, 2)
        self._bn0 = nn.BatchNorm2d(32, _EPSILON)
        self._blocks = nn.ModuleList(_blocks())
        self._conv_head = _convolution(320, _FEATURES)
        self._bn1 = nn.BatchNorm2d(_FEATURES, _EPSILON)
        self._fc = nn.Linear(_FEATURES, _CLASSES)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = functional.relu6(self._bn0(self._conv_stem(images)))
        for block in self._blocks:
            found = block(found)
        features = functional.relu6(self._bn1(self._conv_head(found))).mean((2, 3))
        return self._fc(features), features


def _blocks() -> list[_Block]:
    """All blocks: the first of each kind changes the shape, the others keep it."""
    made: list[_Block] = []
    for repeats, kernel, stride, expansion, channels_in, channels_out in _BLOCKS:
        made.append(_Block(kernel, stride, expansion, channels_in, channels_out))
        made += [_Block(kernel, 1, expansion, channels_out, channels_out) for _ in range(repeats - 1)]
    return made
