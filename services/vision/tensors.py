"""Raw tensors in and out. An input that the model does not take is refused by its field."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from hedgerow.vision.v1 import vision_pb2
from services.runtime.errors import InvalidInput
from services.vision.errors import EngineFailed
from services.vision.model import Row, VisionModel
from services.vision.pictures import Array

_NUMBERS: dict[np.dtype[Any], vision_pb2.DataType] = {
    np.dtype("<f4"): vision_pb2.DATA_TYPE_FLOAT32,
    np.dtype("<f2"): vision_pb2.DATA_TYPE_FLOAT16,
    np.dtype("u1"): vision_pb2.DATA_TYPE_UINT8,
    np.dtype("<i4"): vision_pb2.DATA_TYPE_INT32,
    np.dtype("<i8"): vision_pb2.DATA_TYPE_INT64,
}


def read(inputs: Sequence[vision_pb2.Tensor], model: VisionModel, max_rows: int) -> Array:
    """The model's one input, the batch first: 1 to `max_rows` items. Raises `InvalidInput`."""
    expected = model.manifest.input
    if len(inputs) != 1:
        raise InvalidInput("inputs", f"1, which is {expected.name}", len(inputs))
    (tensor,) = inputs
    if tensor.name != expected.name:
        raise InvalidInput("inputs[0].name", expected.name, tensor.name or "none")
    dtype: np.dtype[Any] = np.dtype(expected.dtype).newbyteorder("<")
    if tensor.data_type != _NUMBERS[dtype]:
        limit = vision_pb2.DataType.Name(_NUMBERS[dtype])
        raise InvalidInput("inputs[0].data_type", limit, _type_name(tensor.data_type))
    shape = tuple(tensor.shape)
    if shape[1:] != expected.shape or not shape or not 1 <= shape[0] <= max_rows:
        limit = f"[1 to {max_rows}, {', '.join(map(str, expected.shape))}]"
        raise InvalidInput("inputs[0].shape", limit, list(shape))
    size = math.prod(shape) * dtype.itemsize
    if len(tensor.data) != size:
        raise InvalidInput("inputs[0].data", f"{size} bytes", f"{len(tensor.data)} bytes")
    array: Array = np.frombuffer(tensor.data, dtype).reshape(shape)
    return array


def outputs(wanted: Sequence[str], model: VisionModel) -> list[str]:
    """The names of the outputs to return: those that are wanted, or all."""
    for position, name in enumerate(wanted):
        if name not in model.shapes:
            raise InvalidInput(f"outputs[{position}]", f"one of {', '.join(model.shapes)}", name)
    return list(wanted) or list(model.shapes)


def write(names: Iterable[str], rows: Sequence[Row]) -> list[vision_pb2.Tensor]:
    """The rows put together again."""
    return [_tensor(name, np.stack([row.outputs[name] for row in rows])) for name in names]


def _tensor(name: str, array: Array) -> vision_pb2.Tensor:
    dtype = array.dtype.newbyteorder("<")
    if dtype not in _NUMBERS:
        raise EngineFailed(f"{name}: elements of the type {array.dtype} cannot be sent")
    data = np.ascontiguousarray(array, dtype).tobytes()
    return vision_pb2.Tensor(name=name, data_type=_NUMBERS[dtype], shape=array.shape, data=data)


def _type_name(number: int) -> str:
    return vision_pb2.DataType.Name(number) if number in vision_pb2.DataType.values() else str(number)
