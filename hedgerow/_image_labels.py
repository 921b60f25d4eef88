"""Labels and embeddings of pictures, as plain values. Times are milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Label:
    """A class and its probability."""

    name: str  # for example `red circle`; several classes may have the same name
    score: float  # probability, 0 to 1
    index: int = 0  # the class's position in the model's output, from 0


@dataclass(frozen=True, slots=True)
class VisionTiming:
    """The parts of a call's time. For several images, the longest of each."""

    preprocess_ms: float  # decoding, resizing, normalizing
    queue_ms: float  # wait for the batch to fill, or for the model
    compute_ms: float
    batch_size: int  # items in the batch


@dataclass(frozen=True, slots=True)
class Classification:
    """The labels of images."""

    results: tuple[tuple[Label, ...], ...]  # one for each image, in order; its labels best first
    model: str
    timing: VisionTiming


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Images as vectors of unit length; their dot product is the similarity of the images."""

    vectors: tuple[tuple[float, ...], ...]  # one for each image, in order
    model: str
    timing: VisionTiming


class Array(Protocol):
    """A value that can be sent as a tensor: a NumPy array, a `Tensor`, or an object with these three."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its dimensions, the batch first."""

    @property
    def dtype(self) -> Any:
        """Its type; `str` of it is `float32`, `float16`, `uint8`, `int32` or `int64`."""

    def tobytes(self) -> bytes:
        """Its elements, little-endian, in row-major order."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """An array without NumPy. `numpy.frombuffer(t.data, t.dtype).reshape(t.shape)` makes it one."""

    dtype: str  # `float32`, `float16`, `uint8`, `int32` or `int64`
    shape: tuple[int, ...]  # the batch first
    data: bytes  # little-endian, in row-major order

    def tobytes(self) -> bytes:
        """The elements, little-endian, in row-major order."""
        return self.data


@dataclass(frozen=True, slots=True)
class Inference:
    """A model's output for tensors."""

    outputs: Mapping[str, Tensor]  # by name, in the requested order
    model: str
    timing: VisionTiming


@dataclass(frozen=True, slots=True)
class FrameLabels:
    """The labels of one video frame."""

    id: int  # the frame's position in the stream, from 0
    labels: tuple[Label, ...]  # best first
    dropped: int  # frames before it that were dropped, because newer ones came
    age_ms: float  # from the frame's arrival at the service to its labels
    problem: str  # why it has no labels, for people; empty when it has


@dataclass(frozen=True, slots=True)
class VisionModel:
    """A model that is loaded."""

    name: str
    engine: str  # for example `onnx`, `torchscript`, `export`, `tensorrt`
    device: str  # for example `cpu`, `cuda:0`
    precision: str  # for example `fp32`, `fp16`, `int8`
    labels: tuple[str, ...]  # empty: it has no classes
    embedding_size: int  # 0: it makes no embeddings
    max_batch: int
    is_default: bool  # it serves requests that name no model
