"""What runs a model's file, chosen by its suffix: ONNX Runtime, TorchScript, torch.export or TensorRT."""

from __future__ import annotations

from importlib import import_module

from services.vision.engine import Engine
from services.vision.engines.checked import CheckedEngine
from services.vision.errors import BadModel
from services.vision.files import Source, engine_of
from services.vision.manifest import Manifest

# Loaded when first needed: a service of ONNX files alone never imports torch.
_MODULES = {"onnx": "onnx", "torchscript": "torchscript", "export": "exported", "tensorrt": "tensorrt"}


def open_engine(source: Source, manifest: Manifest, threads: int) -> Engine:
    """Load a model and try it on one item of zeros. Takes seconds; minutes where TensorRT builds an engine.

    The device `auto` is the first GPU that the engine can use, else the CPU. Where the file has no names for its
    outputs, those of the manifest are in its order. `threads` bounds the cores one call uses on the CPU; 0: the library
    decides. Raises `BadModel` with the limit and the value at fault.
    """
    engine = engine_of(source.path)
    try:
        module = import_module(f"{__name__}.{_MODULES[engine]}")
    except ImportError as error:
        raise BadModel(f"file: {source.name} needs {error.name}, which is not installed") from error
    return CheckedEngine(module.load(source, manifest, threads), manifest)
