"""ONNX files on ONNX Runtime: on a GPU through TensorRT where it is installed, else CUDA; else on the CPU.

Options: https://onnxruntime.ai/docs/execution-providers/, TensorRT and CUDA.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnxruntime

from hedgerow.private import private_folder
from services.vision.engine import Arrays
from services.vision.engines.devices import choose_device, refuse_precision
from services.vision.errors import BadModel
from services.vision.files import Source
from services.vision.manifest import Input, Manifest

_TENSORRT, _CUDA, _CPU = "TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"
_MOST_GPUS = 64  # their number is not known before one is used
_PROFILE = {"min": 1, "opt": 16, "max": 64}  # the batches one TensorRT engine is built for; others build another
_DTYPES = {
    "float32": "tensor(float)",
    "float16": "tensor(float16)",
    "uint8": "tensor(uint8)",
    "int32": "tensor(int32)",
    "int64": "tensor(int64)",
}
Provider = tuple[str, dict[str, Any]]


def load(source: Source, manifest: Manifest, threads: int) -> OnnxBackend:
    """A session on the best provider of this machine that has the precision."""
    available = onnxruntime.get_available_providers()
    chosen = choose_device(manifest.device, _MOST_GPUS if _CUDA in available else 0, "ONNX Runtime")
    tensorrt = _TENSORRT in available
    _check_precision(source, chosen, manifest, tensorrt)
    session = _session(source, _providers(source, chosen, manifest, tensorrt), threads)
    if chosen != "cpu" and session.get_providers() == [_CPU]:  # it has what a GPU needs, but no GPU
        if manifest.device != "auto":
            raise BadModel(f"device: ONNX Runtime found no such GPU, got {manifest.device}")
        chosen = "cpu"
        _check_precision(source, chosen, manifest, tensorrt)
    outputs = list(manifest.outputs.values())
    _check_names(session, manifest.input, outputs)
    return OnnxBackend(session, chosen, manifest.precision, outputs)


class OnnxBackend:
    """A session, with its inputs and outputs bound to the device's memory where that is not the CPU's."""

    kind = "onnx"

    def __init__(self, session: Any, device: str, precision: str, outputs: Sequence[str]):
        self.device, self.precision = device, precision
        self._session, self._outputs = session, list(outputs)

    def compute(self, inputs: Arrays) -> Arrays:
        found = self._session.run(self._outputs, inputs) if self.device == "cpu" else self._bound(inputs)
        return dict(zip(self._outputs, found, strict=True))

    def close(self) -> None:
        self._session = None

    def _bound(self, inputs: Arrays) -> Any:
        """Each session has a CUDA stream of its own; the copies go there too."""
        kind, _, index = self.device.partition(":")
        binding = self._session.io_binding()
        for name, array in inputs.items():
            binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array, kind, int(index)))
        for name in self._outputs:
            binding.bind_output(name, kind, int(index))
        binding.synchronize_inputs()
        self._session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        return binding.copy_outputs_to_cpu()


def _check_precision(source: Source, device: str, manifest: Manifest, tensorrt: bool) -> None:
    """A file has a precision of its own, which only TensorRT can lower."""
    precision, halves = manifest.precision, manifest.input.dtype == "float16"
    builds = device != "cpu" and tensorrt
    if precision == "int8" and b"QuantizeLinear" not in source.content:
        raise BadModel("precision: int8 needs a file with quantized layers, and this one has none")
    if (precision == "fp16" and not builds and not (halves and device != "cpu")) or (
        precision == "bf16" and not builds
    ):
        supported = "fp32 or int8" if device == "cpu" else "fp32, int8, or fp16 with float16 inputs"
        raise refuse_precision(precision, device, "ONNX Runtime without TensorRT", supported)


def _providers(source: Source, device: str, manifest: Manifest, tensorrt: bool) -> list[Provider]:
    if device == "cpu":
        return [(_CPU, {})]
    index = int(device.partition(":")[2])
    cuda: Provider = (_CUDA, {"device_id": index})
    return [*([_tensorrt(source, index, manifest)] if tensorrt else []), cuda, (_CPU, {})]


def _tensorrt(source: Source, index: int, manifest: Manifest) -> Provider:
    # The provider names its engines after the graph and not after the weights, so each file has a folder of its own.
    # It is not beside the model: what changes there is a model to load.
    cache = Path.home() / ".cache" / "hedgerow" / "tensorrt" / source.digest
    private_folder(cache)  # an engine is machine code, and is loaded without a question
    image = manifest.input
    profiles = {
        f"trt_profile_{name}_shapes": f"{image.name}:{'x'.join(map(str, (size, *image.shape)))}"
        for name, size in _PROFILE.items()
    }
    enabled = {"fp16": {"trt_fp16_enable": True}, "bf16": {"trt_bf16_enable": True}, "int8": {"trt_int8_enable": True}}
    options = {
        "trt_engine_cache_enable": True,
        "trt_engine_cache_path": str(cache),
        **enabled.get(manifest.precision, {}),
    }
    return _TENSORRT, {"device_id": index, **options, **profiles}


def _session(source: Source, providers: list[Provider], threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Threads spin for 10 µs between operators, and sleep once the network is done. EfficientNet-Lite0 takes 3.5 ms on
    # two free cores, and 4.4 without spinning; on busy cores 6 ms, and 11 with ONNX Runtime's own default.
    options.add_session_config_entry("session.intra_op.allow_spinning", "1")
    options.add_session_config_entry("session.intra_op.spin_duration_us", "10")
    options.add_session_config_entry("session.force_spinning_stop", "1")
    try:
        _add_external_weights(options, source)
        return onnxruntime.InferenceSession(source.content, options, providers=providers)
    except Exception as error:
        raise BadModel(f"file: ONNX Runtime {onnxruntime.__version__} cannot load {source.name}: {error}") from error


def _add_external_weights(options: Any, source: Source) -> None:
    """Add the location of weights outside of the file: its folder, which ONNX Runtime itself does not leave; or, if
    files are pinned, the weights in memory whose digests were compared."""
    if source.beside is None:
        folder = str(source.path.parent)
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
        return
    files = dict(source.beside) or {"none": b"\0"}  # given none at all, it would look for them on disk
    options.add_external_initializers_from_files_in_memory(
        list(files), list(files.values()), list(map(len, files.values()))
    )


def _check_names(session: Any, given: Input, outputs: Sequence[str]) -> None:
    there = {entry.name: entry for entry in session.get_inputs()}
    if list(there) != [given.name]:
        raise BadModel(f"input: the file has {', '.join(there)}, got {given.name}")
    entry = there[given.name]
    if entry.type != _DTYPES[given.dtype]:
        raise BadModel(f"input: {given.name} is {entry.type} in the file, got {given.dtype}")
    if not _fits(given.shape, entry.shape[1:]):
        raise BadModel(f"input: {given.name} has the shape {entry.shape[1:]} in the file, got {list(given.shape)}")
    missing = set(outputs) - (names := {entry.name for entry in session.get_outputs()})
    if missing:
        raise BadModel(f"outputs: the file has {', '.join(sorted(names))}, got {', '.join(sorted(missing))}")


def _fits(shape: Sequence[int], declared: Sequence[int | str | None]) -> bool:
    """Whether the sizes are those of the file; one that is named there may be any."""
    pairs = zip(shape, declared, strict=False)
    return len(shape) == len(declared) and all(not isinstance(there, int) or size == there for size, there in pairs)
