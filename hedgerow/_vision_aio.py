"""The vision service's asyncio client."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Mapping, Sequence
from itertools import count

from hedgerow import _vision_messages as messages
from hedgerow._base_aio import AsyncServiceClient
from hedgerow._image_labels import Array, Classification, Embeddings, FrameLabels, Inference, VisionModel
from hedgerow._options import Media
from hedgerow._peer import Peer
from hedgerow._sending_aio import AsyncDuplexStream
from hedgerow._streams_aio import AsyncEventStream
from hedgerow._tls import Tls
from hedgerow.vision.v1 import vision_pb2, vision_pb2_grpc


class AsyncVisionClient(AsyncServiceClient):
    """A vision service, over one pooled connection that is opened when first used.

    Safe to share between tasks of one loop.

    Images are the bytes of PNG, JPEG, WebP, GIF or AVIF files, or paths. `model` defaults to that of the service.
    `budget_ms` limits the time of a call; default: the client's `default_budget_ms`.
    """

    def __init__(
        self,
        target: str = messages.DEFAULT_TARGET,
        *,
        api_key: str | None = None,
        default_budget_ms: int = messages.DEFAULT_BUDGET_MS,
        tls: Tls | None = None,
        allow_plaintext_key: bool = False,
    ):
        peer = Peer(target, api_key, "vision service", tls, allow_plaintext_key)
        super().__init__(peer, vision_pb2_grpc.VisionServiceStub)
        self._default_budget_ms = default_budget_ms

    async def classify(
        self,
        images: Media | Sequence[Media],
        *,
        model: str | None = None,
        top_k: int | None = None,
        budget_ms: int | None = None,
    ) -> Classification:
        """Classify 1 to 64 images: `top_k` labels for each, by default 1."""
        request = messages.classify_request(images, model, top_k)
        return messages.classification(await self._call(self._stub.Classify, request, self._timeout_s(budget_ms)))

    async def embed(
        self, images: Media | Sequence[Media], *, model: str | None = None, budget_ms: int | None = None
    ) -> Embeddings:
        """1 to 64 images as vectors of unit length."""
        request = messages.embed_request(images, model)
        return messages.embeddings(await self._call(self._stub.Embed, request, self._timeout_s(budget_ms)))

    async def infer(
        self,
        inputs: Mapping[str, Array],
        *,
        outputs: Sequence[str] = (),
        model: str | None = None,
        budget_ms: int | None = None,
    ) -> Inference:
        """Run a model on arrays, NumPy's or `Tensor`. Returns its `outputs`, by default all."""
        request = messages.infer_request(inputs, outputs, model)
        return messages.inference(await self._call(self._stub.Infer, request, self._timeout_s(budget_ms)))

    def classify_frames(
        self, frames: AsyncIterable[Media], *, model: str | None = None, top_k: int | None = None
    ) -> AsyncEventStream[FrameLabels]:
        """Classify video frames; frames that wait are dropped for the newest one.

        `frames` is read in a task of its own.
        """
        requests, incoming = _frames(frames, model, top_k), messages.IncomingFrames(self._peer)
        return AsyncDuplexStream.begin(self._stub.ClassifyFrames, requests, incoming, self._peer.metadata())

    async def models(self, *, budget_ms: int | None = None) -> tuple[VisionModel, ...]:
        """The loaded models by name."""
        request = vision_pb2.ListModelsRequest()
        return messages.models(await self._call(self._stub.ListModels, request, self._timeout_s(budget_ms)))

    def _timeout_s(self, budget_ms: int | None) -> float:
        return (self._default_budget_ms if budget_ms is None else budget_ms) / 1000


async def _frames(
    given: AsyncIterable[Media], model: str | None, top_k: int | None
) -> AsyncGenerator[vision_pb2.ClassifyFramesRequest, None]:
    """How to look, then the frames, numbered from 0."""
    yield messages.frames_opening(model, top_k)
    numbers = count()
    async for frame in given:
        yield messages.frame_request(next(numbers), frame)
