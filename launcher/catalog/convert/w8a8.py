"""W8A8: 8-bit weights by rounding, 8-bit activations that the engine rounds as they come.

The format is compressed-tensors' `int-quantized` (https://github.com/vllm-project/compressed-tensors): one scale for
each output channel, symmetric; activations get a scale for each token at run time. The embeddings, which are also
the output layer, stay in bfloat16.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

_LARGEST = 127


def _scheme(strategy: str, dynamic: bool) -> dict[str, Any]:
    return {"num_bits": 8, "type": "int", "symmetric": True, "strategy": strategy, "dynamic": dynamic}


QUANTIZATION: dict[str, Any] = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": _scheme("channel", False),
            "input_activations": _scheme("token", True),
        }
    },
}


def quantized(weights: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
    """The weights, where each linear layer's are int8 with a scale beside them."""
    for name, values in weights:
        if not name.endswith("_proj.weight"):
            yield name, values
            continue
        exact = values.float()
        # Rounded to bfloat16 first, because that is what is stored: values are then divided by the scale in use.
        scale = (exact.abs().amax(dim=1, keepdim=True) / _LARGEST).clamp(min=1e-8).bfloat16()
        yield name, (exact / scale.float()).round().clamp(-_LARGEST - 1, _LARGEST).to(torch.int8)
        yield f"{name}_scale", scale
