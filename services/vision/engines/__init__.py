"""What runs a model's file, chosen by its suffix: ONNX Runtime, TorchScript, torch.export or TensorRT. Outputs are
checked, and failures have one name."""

from __future__ import annotations

import logging
import traceback
from importlib import import_module
from typing import Protocol

import numpy as np

from services.vision.engine import Arrays, VisionEngine
from services.vision.errors import BadModel, EngineFailed
from services.vision.files import Source, engine_of
from services.vision.manifest import Manifest

# Loaded when first needed: a service of ONNX files alone never imports torch.
_LOADERS = {
    "onnx": "onnx:load",
    "torchscript": "torch_backend:load_script",
    "export": "torch_backend:load_export",
    "tensorrt": "tensorrt:load",
}
_log = logging.getLogger(__name__)


def open_engine(source: Source, manifest: Manifest, threads: int) -> VisionEngine:
    """Load a model and try it on one item of zeros. Takes seconds; minutes where TensorRT builds an engine.

    The device `auto` is the first GPU that the engine can use, else the CPU. Where the file has no names for its
    outputs, those of the manifest are in its order. `threads` bounds the cores one call uses on the CPU; 0: the library
    decides. Raises `BadModel` with the limit and the value at fault.
    """
    module, _, loader = _LOADERS[engine_of(source.path)].partition(":")
    try:
        load = getattr(import_module(f"{__name__}.{module}"), loader)
    except ImportError as error:
        raise BadModel(f"file: {source.name} needs {error.name}, which is not installed") from error
    return CheckedEngine(load(source, manifest, threads), manifest)


class LoadedLibrary(Protocol):
    """A library with a model loaded. May raise anything."""

    kind: str
    device: str
    precision: str

    def compute(self, inputs: Arrays) -> Arrays:
        """The outputs by name, in arrays of their own."""
        ...

    def close(self) -> None:
        """Give the device's memory back. It computes nothing afterwards."""
        ...


class CheckedEngine:
    """An `VisionEngine` over a backend that has been tried once."""

    def __init__(self, backend: LoadedLibrary, manifest: Manifest):
        self.kind, self.device, self.precision = backend.kind, backend.device, backend.precision
        self._backend: LoadedLibrary | None = backend
        self._input, self._outputs = manifest.input, tuple(manifest.outputs.values())
        try:
            self.run({self._input.name: np.zeros((1, *self._input.shape), self._input.dtype)})
        except EngineFailed as error:
            raise BadModel(f"the model does not run on zeros: {error.__cause__ or error}") from error

    def run(self, inputs: Arrays) -> Arrays:
        """Run the model. Returns all outputs by name. Raises `EngineFailed`."""
        count = len(inputs[self._input.name])
        if self._backend is None:
            raise EngineFailed("the model has been closed")
        try:
            found = self._backend.compute(inputs)
        except Exception as error:
            _log.exception("a batch of %d failed on %s, %s", count, self.kind, self.device)
            traceback.clear_frames(error.__traceback__)  # their locals hold the device's memory, which a retry needs
            raise EngineFailed(f"the model failed on a batch of {count}") from error
        shapes = {name: found[name].shape for name in self._outputs if name in found}
        if set(shapes) != set(self._outputs) or any(shape[:1] != (count,) for shape in shapes.values()):
            raise EngineFailed(f"outputs: {', '.join(self._outputs)} with {count} items, got {shapes}")
        return {name: found[name] for name in self._outputs}

    def close(self) -> None:
        """Give the device's memory back. `run` raises `EngineFailed` afterwards."""
        if self._backend:
            self._backend.close()
        self._backend = None
