"""EfficientNet-Lite0 as the vision service loads it: a folder with one model, its labels and its `model.yaml`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from launcher.catalog.convert.efficientnet_network import PIXELS, EfficientNetLite0

_NAME = "efficientnet-lite0"
_FILES = {"onnx": "model.onnx", "torchscript": "model.ts", "export": "model.pt2"}
_OPSET = 18
_OUTPUTS = ["logits", "embedding"]
# The authors' preprocessing: the middle 224 of 256 pixels, bicubic, then (value - 127) / 128.
_MANIFEST = """\
# EfficientNet-Lite0, trained on ImageNet-1k: names one of 1,000 things. Written by `hedgerow models pull`.
file: {file}
input: {{name: image, shape: [3, {pixels}, {pixels}], dtype: float32}}
outputs: {{logits: logits, embedding: embedding}}
activation: softmax
labels: labels.txt
preprocessing:
  resize: 256
  crop: [{pixels}, {pixels}]
  interpolation: bicubic
  mean: [0.498, 0.498, 0.498]
  std: [0.502, 0.502, 0.502]
batching: {{max_size: 32, preferred: [4, 8, 16], max_delay_ms: 2.0}}
"""


def make(_: str, raw: Path, made: Path, form: str) -> None:
    """`made/efficientnet-lite0/`, so that `made` is a folder of models, which is what the service is given."""
    folder = made / _NAME
    folder.mkdir()
    network = EfficientNetLite0()
    network.load_state_dict(torch.load(next(raw.glob("*.pth")), weights_only=True, map_location="cpu"))
    network.eval()
    file = folder / _FILES[form or "onnx"]
    with torch.inference_mode(False), torch.no_grad():
        _EXPORTS[form or "onnx"](network, file)
    names = json.loads((raw / "imagenet1k_clean_names.json").read_text(encoding="utf-8"))
    (folder / "labels.txt").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    (folder / "model.yaml").write_text(_MANIFEST.format(file=file.name, pixels=PIXELS), encoding="utf-8")


def _examples() -> torch.Tensor:
    return torch.zeros(2, 3, PIXELS, PIXELS)


def _dynamic() -> Any:
    """Batches of any size."""
    return ({0: torch.export.Dim("batch", min=1, max=1024)},)


def _onnx(network: EfficientNetLite0, file: Path) -> None:
    torch.onnx.export(
        network,
        (_examples(),),
        str(file),
        input_names=["image"],
        output_names=_OUTPUTS,
        opset_version=_OPSET,
        dynamic_shapes=_dynamic(),
        dynamo=True,
        external_data=False,
        verbose=False,
    )


def _torchscript(network: EfficientNetLite0, file: Path) -> None:
    torch.jit.trace(network, _examples()).save(str(file))


def _export(network: EfficientNetLite0, file: Path) -> None:
    torch.export.save(torch.export.export(network, (_examples(),), dynamic_shapes=_dynamic()), file)


_EXPORTS = {"onnx": _onnx, "torchscript": _torchscript, "export": _export}
