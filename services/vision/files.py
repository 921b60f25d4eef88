"""Which files the engines may load, and each file's content, read once: what was looked at is what is loaded.

A model's file is code to most engines: `torch.jit.load` runs what it holds, a TensorRT plan is machine
code, and `torch.export.load` unpickles and evaluates. So the operator lists the engines that may load anything, and
may pin every file by its digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Self

from services.vision.errors import BadModel

ENGINES = {".onnx": "onnx", ".pt2": "export", ".ts": "torchscript", ".plan": "tensorrt"}  # by a file's suffix


@dataclass(frozen=True)
class Source:
    """A model's file as it was read. `beside`: the other files that belong to it, by name; None: whatever is there."""

    path: Path
    content: bytes = field(repr=False)
    beside: Mapping[str, bytes] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, path: Path) -> Self:
        """The whole content of the file."""
        return cls(path, path.read_bytes())

    @property
    def name(self) -> str:
        return self.path.name

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hexadecimal."""
        return _digest(self.content)


@dataclass(frozen=True, slots=True)
class Trust:
    """The operator's rules for files: permitted engines by name, and digests by path below `folder`; without digests
    any file is permitted."""

    folder: Path
    engines: Collection[str]
    digests: Mapping[str, str]

    def read(self, file: Path) -> Source:
        """The file, once its engine is allowed and its content is what was pinned. Raises `BadModel`."""
        engine = engine_of(file)
        if engine not in self.engines:
            allowed = ", ".join(self.engines)
            raise BadModel(f"file: of the engines {allowed} (the setting `engines`), got {file.name}, for {engine}")
        if not file.is_file():
            raise BadModel(f"file: there is no {file}")
        if not self.digests:
            return Source.of(file)
        content = self._pinned(file)
        others = (self.folder / path for path in self.digests)
        beside = {str(o.relative_to(file.parent)): self._pinned(o) for o in others if _belongs(o, file)}
        return Source(file, content, beside)

    def _pinned(self, file: Path) -> bytes:
        """The content of the file, read once and compared."""
        name = file.relative_to(self.folder).as_posix()
        if name not in self.digests:
            raise BadModel(f"file: one of those that the setting `digests` names, got {name}")
        content = file.read_bytes()
        if (found := _digest(content)) != self.digests[name].lower():
            raise BadModel(f"digests: {name} with the SHA-256 {self.digests[name].lower()}, got {found}")
        return content


def engine_of(file: Path) -> str:
    """Raises `BadModel` for a suffix that no engine takes."""
    if file.suffix not in ENGINES:
        raise BadModel(f"file: {', '.join(ENGINES)}, got {file.name}")
    return ENGINES[file.suffix]


def _belongs(other: Path, file: Path) -> bool:
    """Whether it may hold weights of the model: in its folder, and itself no model."""
    return other.is_relative_to(file.parent) and other.suffix not in ENGINES and other.is_file()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
