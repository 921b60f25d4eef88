"""torch.export packages (`torch.export.save`)."""

from __future__ import annotations

from io import BytesIO

import torch
from torch.export.passes import move_to_device_pass

from services.vision.engines import package
from services.vision.engines.torch_backend import TorchBackend, torch_device, torch_dtype, use_threads
from services.vision.errors import BadModel
from services.vision.files import Source
from services.vision.manifest import Manifest


def load(source: Source, manifest: Manifest, threads: int) -> TorchBackend:
    """The program's graph as a module, with its weights on the device."""
    device = torch_device(manifest.device)
    dtype = torch_dtype(manifest.precision, device)
    use_threads(threads)
    archive = package.plain(source)
    try:
        program = torch.export.load(BytesIO(archive))
    except Exception as error:
        raise BadModel(f"file: {source.name} is no package that torch {torch.__version__} reads") from error
    if device != "cpu":  # also tensors that the program makes, such as `torch.zeros(…, device="cpu")`
        program = move_to_device_pass(program, device)
    return TorchBackend("export", program.module().to(dtype), device, dtype, manifest)
