"""Requests and responses of the vision clients. No I/O but reading files; both clients share it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import grpc

from hedgerow import _convert
from hedgerow._fields import one_of, set_fields
from hedgerow._image_labels import (
    Array,
    Classification,
    Embeddings,
    FrameLabels,
    Inference,
    Tensor,
    VisionModel,
    VisionTiming,
)
from hedgerow._media import read, read_all
from hedgerow._options import Media
from hedgerow._peer import Peer
from hedgerow._request import refuse_too_large
from hedgerow._status import from_rpc_error
from hedgerow.vision.v1 import vision_pb2 as pb

DEFAULT_TARGET = "127.0.0.1:50055"
DEFAULT_BUDGET_MS = 10_000

_TYPES = {
    "float32": pb.DATA_TYPE_FLOAT32,
    "float16": pb.DATA_TYPE_FLOAT16,
    "uint8": pb.DATA_TYPE_UINT8,
    "int32": pb.DATA_TYPE_INT32,
    "int64": pb.DATA_TYPE_INT64,
}
_TYPE_NAMES = {number: name for name, number in _TYPES.items()}


def classify_request(images: Media | Sequence[Media], model: str | None, top_k: int | None) -> pb.ClassifyRequest:
    request = pb.ClassifyRequest(images=_images(images))
    set_fields(request, "", model=model, top_k=top_k)
    refuse_too_large(request)
    return request


def embed_request(images: Media | Sequence[Media], model: str | None) -> pb.EmbedRequest:
    request = pb.EmbedRequest(images=_images(images))
    set_fields(request, "", model=model)
    refuse_too_large(request)
    return request


def infer_request(inputs: Mapping[str, Array], outputs: Sequence[str], model: str | None) -> pb.InferRequest:
    request = pb.InferRequest(inputs=[_tensor(name, array) for name, array in inputs.items()], outputs=outputs)
    set_fields(request, "", model=model)
    refuse_too_large(request)
    return request


def frames_opening(model: str | None, top_k: int | None) -> pb.ClassifyFramesRequest:
    """How to look."""
    opening = pb.ClassifyFramesRequest()
    set_fields(opening, "", model=model, top_k=top_k)
    return opening


def frame_request(number: int, frame: Media) -> pb.ClassifyFramesRequest:
    """One frame, by its number."""
    request = pb.ClassifyFramesRequest(id=number, frame=pb.Image(data=read(f"frames[{number}]", frame)))
    refuse_too_large(request)
    return request


def classification(message: pb.ClassifyResponse) -> Classification:
    return Classification(tuple(map(_convert.labels, message.results)), message.model, _timing(message.timing))


def embeddings(message: pb.EmbedResponse) -> Embeddings:
    vectors = tuple(tuple(embedding.values) for embedding in message.embeddings)
    return Embeddings(vectors, message.model, _timing(message.timing))


def inference(message: pb.InferResponse) -> Inference:
    outputs = {
        tensor.name: Tensor(_TYPE_NAMES.get(tensor.data_type, "unspecified"), tuple(tensor.shape), tensor.data)
        for tensor in message.outputs
    }
    return Inference(outputs, message.model, _timing(message.timing))


def models(message: pb.ListModelsResponse) -> tuple[VisionModel, ...]:
    return tuple(
        VisionModel(
            name=model.name,
            engine=model.engine,
            device=model.device,
            precision=model.precision,
            labels=tuple(model.labels),
            embedding_size=model.embedding_size,
            max_batch=model.max_batch,
            is_default=model.is_default,
        )
        for model in message.models
    )


class IncomingFrames:
    """The labels of a video as they are read."""

    def __init__(self, peer: Peer):
        self._peer = peer

    def events(self, message: pb.ClassifyFramesResponse) -> list[FrameLabels]:
        """The labels of one frame."""
        labels = _convert.labels(pb.Labels(labels=message.labels))
        return [FrameLabels(message.id, labels, message.dropped, message.age_ms, message.problem)]

    def failed(self, error: grpc.RpcError) -> None:
        """Raise what gRPC raised as a typed error."""
        raise from_rpc_error(error, self._peer, None) from error

    def ended(self) -> None:
        """A video may end at any time."""


def _images(given: Media | Sequence[Media]) -> list[pb.Image]:
    return [pb.Image(data=data) for data in read_all("images", given)]


def _tensor(name: str, array: Array) -> pb.Tensor:
    data_type = _TYPES[one_of(f"inputs.{name}.dtype", str(array.dtype), _TYPES)]
    return pb.Tensor(name=name, data_type=data_type, shape=array.shape, data=array.tobytes())


def _timing(message: pb.Timing) -> VisionTiming:
    return VisionTiming(message.preprocess_ms, message.queue_ms, message.compute_ms, message.batch_size)
