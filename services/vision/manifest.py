"""`model.yaml`: the description of a model in its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from services.runtime import yaml_file
from services.runtime.errors import shorten
from services.vision.errors import BadModel

FILE = "model.yaml"
MAX_LABELS = 65_536  # three times ImageNet-21k; `ListModels` sends all of them in one message
MAX_NAME = 512  # characters
Roles = Literal["probabilities", "logits", "embedding"]
Activation = Literal["softmax", "sigmoid", "none"]
Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos"]
INTERPOLATIONS: tuple[Interpolation, ...] = get_args(Interpolation)
Channels = tuple[float, float, float]
Size = tuple[int, int]  # height, width


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
    """How a picture becomes the input: RGB, resized with an antialiasing filter, then `(value / 255 - mean) / std`.

    The results are those of Pillow, and so of torchvision and timm on Pillow images.
    """

    resize: int | Size = Field(
        description="Pixels of the shorter side, the aspect ratio kept; or height and width, in which case `fit` says "
        "what happens to another aspect ratio."
    )
    crop: Size | None = Field(
        None, description="Height and width of the centre crop after the resize. Required if `resize` is one number."
    )
    fit: Literal["stretch", "crop", "pad"] = Field(
        "stretch",
        description="With `resize` as height and width: squash the picture, keep the largest centre crop of that "
        "aspect ratio, or add black bars.",
    )
    interpolation: Interpolation = Field("bilinear", description="The filter of the resize, by Pillow's name.")
    mean: Channels = (0.0, 0.0, 0.0)
    std: Channels = (1.0, 1.0, 1.0)

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if min(self.std) <= 0:
            raise ValueError("std: greater than 0")
        if min(self.size) < 1 or (isinstance(self.resize, int) and self.resize < 1):
            raise ValueError("resize, crop: at least 1 pixel")
        if self.fit != "stretch" and (self.crop or isinstance(self.resize, int)):
            raise ValueError(f"fit: only with resize as [height, width] and without crop, got {self.fit}")
        if self.crop and (self.crop[0] > self.resized[0] or self.crop[1] > self.resized[1]):
            raise ValueError(f"crop: at most the resized picture, {list(self.resized)}, got {list(self.crop)}")
        return self

    @property
    def resized(self) -> Size:
        """The least height and width of the resized picture."""
        return (self.resize, self.resize) if isinstance(self.resize, int) else self.resize

    @property
    def size(self) -> Size:
        """Height and width of the model's input."""
        if self.crop is None and isinstance(self.resize, int):
            raise ValueError(f"crop: required with resize: {self.resize}; for example crop: [224, 224]")
        return self.crop or self.resized


class Batching(_Strict):
    """Batch sizes, in Triton's terms."""

    max_size: int = Field(32, ge=1, le=1024)
    preferred: tuple[int, ...] = ()
    max_delay_ms: float = Field(2.0, ge=0, le=1000)

    @model_validator(mode="after")
    def _sizes_exist(self) -> Self:
        if any(not 1 <= size <= self.max_size for size in self.preferred):
            raise ValueError(f"preferred: 1 to max_size ({self.max_size})")
        return self


class Manifest(_Strict):
    """A model. `file` and `labels` are relative to its folder; `file`'s suffix chooses the engine.

    Example, as the model card of EfficientNet-Lite0 has it:

        file: model.onnx
        input: {name: image, shape: [3, 224, 224]}
        outputs: {logits: logits}
        activation: softmax
        labels: labels.txt
        preprocessing:
          resize: 256
          crop: [224, 224]
          interpolation: bicubic
          mean: [0.498, 0.498, 0.498]
          std: [0.502, 0.502, 0.502]
    """

    file: Path
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    precision: Literal["fp32", "fp16", "bf16", "int8"] = "fp32"
    input: Input
    outputs: dict[Roles, str] = Field(description="The names of the model's outputs, by what they are.")
    activation: Activation | None = Field(
        None,
        description="How scores become probabilities: `softmax` (one class fits) or `sigmoid` (each class separately) "
        "of logits, `none` of probabilities. Default: softmax with logits, none with probabilities.",
    )
    labels: Path | None = Field(
        None, description="A text file: one name in a line, in the classes' order. Names may repeat."
    )
    preprocessing: Preprocessing | None = Field(None, description="None: the model takes tensors alone.")
    batching: Batching = Batching()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.preprocessing:
            if self.input.shape != (3, *self.preprocessing.size):
                made = [3, *self.preprocessing.size]
                raise ValueError(f"preprocessing makes {made}: the same as input.shape, got {list(self.input.shape)}")
            if self.input.dtype not in ("float32", "float16"):
                raise ValueError("input.dtype: float32 or float16 with preprocessing")
        if not self.outputs:
            raise ValueError("outputs: at least 1")
        if "probabilities" in self.outputs and "logits" in self.outputs:
            raise ValueError("outputs: probabilities or logits, not both")
        if self.labels and not self.scores:
            raise ValueError("labels: only with probabilities or logits")
        if self.activation and (self.activation == "none") == ("logits" in self.outputs):
            raise ValueError("activation: softmax or sigmoid with logits, none with probabilities")
        return self

    @property
    def activated(self) -> Activation:
        """How the scores become probabilities."""
        return self.activation or ("softmax" if "logits" in self.outputs else "none")

    @property
    def scores(self) -> str | None:
        """The name of the output with the scores of classes."""
        return self.outputs.get("probabilities") or self.outputs.get("logits")

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of batches that are warmed up."""
        return tuple(sorted({1, *self.batching.preferred, self.batching.max_size}))


def read(folder: Path) -> tuple[Manifest, tuple[str, ...]]:
    """A folder's manifest, with paths made absolute, and its labels. Raises `BadModel`."""
    path = folder / FILE
    try:
        content = yaml_file.parse(path.read_text(encoding="utf-8"))
        manifest = Manifest.model_validate(content)
    except ValidationError as error:
        raise BadModel(f"{path}: {'; '.join(map(_problem, error.errors()))}") from None
    except (OSError, ValueError, yaml.YAMLError) as error:
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
    """Check that a model names a file of its own folder."""
    if path.is_absolute() or ".." in path.parts:
        raise BadModel(f"{folder / FILE}: {field}: a file in the model's folder, got {path}")
    if not (folder / path).is_file():
        raise BadModel(f"{folder / FILE}: {field}: a file that exists, got {path}")
    return folder / path


def _labels(path: Path) -> tuple[str, ...]:
    """The names of a file, one on each line, at most `MAX_LABELS`. Names may repeat: ImageNet has two "crane" and two
    "maillot"."""
    try:
        labels = tuple(path.read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise BadModel(f"{path}: {error}") from None
    for number, label in enumerate(labels, 1):
        if not label.strip():
            raise BadModel(f"{path}: a name on each line, got none on line {number}")
        if len(label) > MAX_NAME:
            raise BadModel(f"{path}: names of at most {MAX_NAME} characters, got {len(label)} on line {number}")
    if not 1 <= len(labels) <= MAX_LABELS:
        raise BadModel(f"{path}: 1 to {MAX_LABELS} names, got {len(labels)}")
    return labels
