"""What runs a model's file, chosen by its suffix: ONNX Runtime, TorchScript, torch.export or TensorRT."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from services.vision.engine import Engine
from services.vision.engines.arrays import ArraySpec
from services.vision.engines.checked import CheckedEngine
from services.vision.errors import BadModel
from services.vision.files import Source, engine_of

# Loaded when first needed: a service of ONNX files alone never imports torch.
_MODULES = {"onnx": "onnx", "torchscript": "torchscript", "export": "exported", "tensorrt": "tensorrt"}
PRECISIONS = ("fp32", "fp16", "bf16", "int8")

__all__ = ["PRECISIONS", "ArraySpec", "open_engine"]


def open_engine(
    source: Source, device: str, precision: str, inputs: Sequence[ArraySpec], outputs: Sequence[str], threads: int
) -> Engine:
    """Load a model and try it on one item of zeros. Takes seconds; minutes where TensorRT builds an engine.

    `device` is `auto`, `cpu`, `cuda` or `cuda:N`; `auto` is the first GPU that the engine can use, else the CPU.
    `outputs` are all of the model's, by name; where it has no names for them, in its order. `threads` bounds the cores
    one call uses on the CPU; 0: the library decides. Raises `BadModel` with the limit and the value at fault. `run`
    raises `InvalidInput` for arrays that are not as `inputs` say, and `EngineFailed` for whatever else goes wrong.
    """
    engine = engine_of(source.path)
    if precision not in PRECISIONS:
        raise BadModel(f"precision: {', '.join(PRECISIONS)}, got {precision}")
    try:
        module = import_module(f"{__name__}.{_MODULES[engine]}")
    except ImportError as error:
        raise BadModel(f"file: {source.name} needs {error.name}, which is not installed") from error
    return CheckedEngine(
        module.load(source, device, precision, tuple(inputs), tuple(outputs), threads), inputs, outputs
    )
