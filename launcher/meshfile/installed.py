"""What a mesh file needs on this machine beside what is installed: each extra of the package brings one of them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from launcher.mesh import MeshError
from launcher.meshfile.schema import MeshFile

_EMBEDDER = "ctranslate2"


def has_embedder() -> bool:
    """Whether a cache here can compare questions by their meaning."""
    return find_spec(_EMBEDDER) is not None


def refuse_missing(name: str, file: MeshFile) -> None:
    """Raise `MeshError`, with the extras to install, where the file needs what is not here."""
    lacking = [f"{where}: needs {what}: pip install 'hedgerow[{extra}]'" for where, what, extra in _lacking(file)]
    if lacking:
        raise MeshError("\n".join(f"{name}: {each}" for each in lacking))


def _lacking(file: MeshFile) -> Iterator[tuple[str, str, str]]:
    """(where in the file, what is not installed, the extra that brings it)."""
    for name, model in file.models.items():
        if model.engine_used == "vllm" and not find_spec("vllm"):
            yield f"models.{name}", "vLLM, because it has no url", "llm"
    if file.vision and not find_spec("onnxruntime"):
        yield "vision", "ONNX Runtime", "vision"
    if file.audio and not find_spec("faster_whisper"):
        yield "audio", "faster-whisper", "audio"
    for key in ("semantic", "collections"):
        if file.cache.enabled and getattr(file.cache, key) and not has_embedder():
            yield f"cache.{key}", "an embedding model", "cache,embedder"
