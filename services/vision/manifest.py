"""`model.yaml`: what a model's folder says about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from services.runtime.errors import shorten
from services.vision.errors import BadModel

FILE = "model.yaml"
Roles = Literal["probabilities", "logits", "embedding"]
Channels = tuple[float, float, float]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Input(_Strict):
    """The model's one input."""

    name: str = Field(min_length=1)
    shape: tuple[int, ...] = Field(min_length=1, max_length=8, description="Of one item: without the batch.")
    dtype: Literal["float32", "float16", "uint8", "int32", "int64"] = "float32"

    @model_validator(mode="after")
    def _has_elements(self) -> Self:
        if min(self.shape) < 1:
            raise ValueError("shape: each dimension at least 1, without the batch")
        return self


class Preprocessing(_Strict):
    """How a picture becomes the input: RGB, resized with an antialiased bilinear filter, then
    `(value / 255 - mean) / std`."""

    resize: tuple[int, int] = Field(description="Height and width in pixels.")
    fit: Literal["stretch", "crop", "pad"] = Field(
        "stretch", description="What becomes of another aspect: squeezed, its middle cut out, or bars added."
    )
    mean: Channels = (0.0, 0.0, 0.0)
    std: Channels = (1.0, 1.0, 1.0)

    @model_validator(mode="after")
    def _can_divide(self) -> Self:
        if min(self.std) <= 0:
            raise ValueError("std: greater than 0")
        return self


class Batching(_Strict):
    """In Triton's terms."""

    max_size: int = Field(32, ge=1, le=1024)
    preferred: tuple[int, ...] = ()
    max_delay_ms: float = Field(2.0, ge=0, le=1000)

    @model_validator(mode="after")
    def _sizes_exist(self) -> Self:
        if any(not 1 <= size <= self.max_size for size in self.preferred):
            raise ValueError(f"preferred: 1 to max_size ({self.max_size})")
        return self


class Manifest(_Strict):
    """A model. `file` and `labels` are relative to its folder; `file`'s suffix chooses the engine."""

    file: Path
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    precision: Literal["fp32", "fp16", "bf16", "int8"] = "fp32"
    input: Input
    outputs: dict[Roles, str] = Field(description="The names of the model's outputs, by what they are.")
    labels: Path | None = None
    preprocessing: Preprocessing | None = Field(None, description="None: the model takes tensors alone.")
    batching: Batching = Batching()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.preprocessing:
            if self.input.shape != (3, *self.preprocessing.resize):
                raise ValueError("preprocessing.resize: the input's height and width; the input: 3 channels first")
            if self.input.dtype not in ("float32", "float16"):
                raise ValueError("input.dtype: float32 or float16 with preprocessing")
        if not self.outputs:
            raise ValueError("outputs: at least 1")
        if "probabilities" in self.outputs and "logits" in self.outputs:
            raise ValueError("outputs: probabilities or logits, not both")
        if self.labels and not self.scores:
            raise ValueError("labels: only with probabilities or logits")
        return self

    @property
    def scores(self) -> str | None:
        """The name of the output that tells classes."""
        return self.outputs.get("probabilities") or self.outputs.get("logits")

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of batches that are warmed up."""
        return tuple(sorted({1, *self.batching.preferred, self.batching.max_size}))


def read(folder: Path) -> tuple[Manifest, tuple[str, ...]]:
    """A folder's manifest, with paths made absolute, and its labels. Raises `BadModel`."""
    path = folder / FILE
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        manifest = Manifest.model_validate(content)
    except ValidationError as error:
        raise BadModel(f"{path}: {'; '.join(map(_problem, error.errors()))}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadModel(f"{path}: {error}") from None
    update = {"file": _inside(folder, "file", manifest.file)}
    if manifest.labels:
        update["labels"] = _inside(folder, "labels", manifest.labels)
    manifest = manifest.model_copy(update=update)
    return manifest, _labels(manifest.labels) if manifest.labels else ()


def _problem(problem: Any) -> str:
    field = ".".join(map(str, problem["loc"])) or "the model"
    given = "" if problem["type"] == "missing" or not problem["loc"] else f", got {shorten(repr(problem['input']))}"
    return f"{field}: {problem['msg'].removeprefix('Value error, ')}{given}"


def _inside(folder: Path, field: str, path: Path) -> Path:
    """A model may name files of its own folder only."""
    if path.is_absolute() or ".." in path.parts:
        raise BadModel(f"{folder / FILE}: {field}: a file in the model's folder, got {path}")
    if not (folder / path).is_file():
        raise BadModel(f"{folder / FILE}: {field}: a file that exists, got {path}")
    return folder / path


def _labels(path: Path) -> tuple[str, ...]:
    """A name on each line."""
    try:
        labels = tuple(path.read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise BadModel(f"{path}: {error}") from None
    for number, label in enumerate(labels, 1):
        if not label.strip():
            raise BadModel(f"{path}: a name on each line, got none on line {number}")
    if len(set(labels)) < len(labels) or not labels:
        raise BadModel(f"{path}: names that differ, got {len(labels)} of which {len(set(labels))} differ")
    return labels
