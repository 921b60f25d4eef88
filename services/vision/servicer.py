"""`hedgerow.vision.v1.VisionService`: proto in, proto out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from hedgerow.vision.v1 import vision_pb2
from services.runtime.errors import Exhausted, InvalidInput, Unavailable
from services.runtime.rpc.authorization import TENANT_HEADER
from services.runtime.rpc.boundary import Call
from services.vision import metrics, outputs, tensors
from services.vision.config import VisionSettings
from services.vision.frames import Frame, FrameSlot, Opening
from services.vision.model import Row, VisionModel
from services.vision.pictures import Pictures, Prepared
from services.vision.repository import Repository

_PASSING = (InvalidInput, Exhausted, Unavailable)  # the next frame may fare better


class VisionServicer:
    """The contract over the models of a repository."""

    def __init__(self, repository: Repository, pictures: Pictures, settings: VisionSettings):
        self._repository, self._pictures, self._settings = repository, pictures, settings
        self._streams: set[FrameSlot] = set()
        self._draining = False

    async def Classify(self, request: vision_pb2.ClassifyRequest, call: Call) -> vision_pb2.ClassifyResponse:
        model = self._repository.get(request.model)
        outputs.check_labels(model)
        top_k = outputs.check_top_k(
            request.top_k if request.HasField("top_k") else None, model, len(request.images) or 1
        )
        rows = await self._infer(model, request.images, call)
        results = [_labels(model, row, top_k) for row in rows]
        return vision_pb2.ClassifyResponse(results=results, model=model.name, timing=_timing(rows))

    async def Embed(self, request: vision_pb2.EmbedRequest, call: Call) -> vision_pb2.EmbedResponse:
        model = self._repository.get(request.model)
        outputs.check_embedding(model)
        rows = await self._infer(model, request.images, call)
        embeddings = [vision_pb2.Embedding(values=outputs.embedding(model, row)) for row in rows]
        return vision_pb2.EmbedResponse(embeddings=embeddings, model=model.name, timing=_timing(rows))

    async def Infer(self, request: vision_pb2.InferRequest, call: Call) -> vision_pb2.InferResponse:
        model = self._repository.get(request.model)
        batch = tensors.read(request.inputs, model, self._settings.max_images)
        names = tensors.outputs(request.outputs, model)
        tenant = call.header(TENANT_HEADER) or ""
        with model.admit(len(batch), tenant):
            rows = await model.compute([_ready(Prepared(row)) for row in batch], call.deadline, tenant)
        _note(call, model, rows)
        return vision_pb2.InferResponse(outputs=tensors.write(names, rows), model=model.name, timing=_timing(rows))

    async def ClassifyFrames(
        self, requests: AsyncIterator[vision_pb2.ClassifyFramesRequest], call: Call
    ) -> AsyncGenerator[vision_pb2.ClassifyFramesResponse, None]:
        slot = FrameSlot()
        self._streams.add(slot)
        reading = asyncio.create_task(_read(requests, slot))
        try:
            if (opening := await slot.opened()) and not self._draining:
                model = self._repository.get(opening.model)
                outputs.check_labels(model)
                outputs.check_top_k(opening.top_k, model)
                while not self._draining and (frame := await slot.get()):
                    yield await self._frame(frame, slot, opening, call)
            if reading.done():
                reading.result()  # raises for a message that was no message
        finally:
            self._streams.discard(slot)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def ListModels(self, request: vision_pb2.ListModelsRequest, call: Call) -> vision_pb2.ListModelsResponse:
        default = self._repository.default
        return vision_pb2.ListModelsResponse(
            models=[
                vision_pb2.Model(
                    name=model.name,
                    engine=model.engine.kind,
                    device=model.engine.device,
                    precision=model.engine.precision,
                    labels=model.labels,
                    embedding_size=model.embedding_size,
                    max_batch=model.manifest.batching.max_size,
                    is_default=model.name == default,
                )
                for model in self._repository.models()
            ]
        )

    def drain(self) -> None:
        """End the streams of frames, which would otherwise stay open for as long as their clients like."""
        self._draining = True
        for slot in self._streams:
            slot.close()

    async def _infer(self, model: VisionModel, images: Sequence[vision_pb2.Image], call: Call) -> list[Row]:
        if not 1 <= len(images) <= self._settings.max_images:
            raise InvalidInput("images", f"1 to {self._settings.max_images}", len(images))
        fields = [f"images[{number}]" for number in range(len(images))]
        rows = await self._rows(model, [image.data for image in images], fields, call)
        _note(call, model, rows)
        return rows

    async def _rows(self, model: VisionModel, data: Sequence[bytes], fields: Sequence[str], call: Call) -> list[Row]:
        wanted, dtype = model.manifest.preprocessing, model.manifest.input.dtype
        assert wanted  # the caller has checked that the model takes pictures
        tenant = call.header(TENANT_HEADER) or ""
        with model.admit(len(data), tenant):
            prepared = [
                self._pictures.prepare(one, field, wanted, dtype, call.deadline, tenant)
                for one, field in zip(data, fields, strict=True)
            ]
            return await model.compute(prepared, call.deadline, tenant)

    async def _frame(
        self, frame: Frame, slot: FrameSlot, opening: Opening, call: Call
    ) -> vision_pb2.ClassifyFramesResponse:
        """The labels of a frame, or why there are none. The model is looked up again: it may have been exchanged, for
        one with fewer labels too."""
        reply = vision_pb2.ClassifyFramesResponse(id=frame.id)
        model = self._repository.get(opening.model)
        try:
            if frame.data is None:
                raise InvalidInput("frame", "a picture in each message but the first", "none")
            outputs.check_labels(model)
            top_k = outputs.check_top_k(opening.top_k, model)
            (row,) = await self._rows(model, [frame.data], ["frame"], call)
            reply.labels.extend(_labels(model, row, top_k).labels)
        except _PASSING as error:
            reply.problem = error.message
        reply.dropped = slot.dropped()
        metrics.DROPPED.inc(reply.dropped)
        reply.age_ms = (time.perf_counter() - frame.arrived) * 1000
        return reply


async def _read(requests: AsyncIterator[vision_pb2.ClassifyFramesRequest], slot: FrameSlot) -> None:
    """Put each frame into the slot as it comes."""
    try:
        async for request in requests:
            top_k = request.top_k if request.HasField("top_k") else None
            first = not slot.is_open
            if first:
                slot.open(Opening(request.model, top_k))
            elif request.model or top_k is not None:
                raise InvalidInput("model" if request.model else "top_k", "in the first message only", "a later one")
            if request.HasField("frame") or not first:
                slot.put(request.id, request.frame.data if request.HasField("frame") else None)
    finally:
        slot.close()


def _ready(item: Prepared) -> asyncio.Future[Prepared]:
    future: asyncio.Future[Prepared] = asyncio.get_running_loop().create_future()
    future.set_result(item)
    return future


def _labels(model: VisionModel, row: Row, top_k: int) -> vision_pb2.Labels:
    named = outputs.labels(model, row, top_k)
    return vision_pb2.Labels(
        labels=[vision_pb2.Label(index=each.index, name=each.name, score=each.score) for each in named]
    )


def _timing(rows: Sequence[Row]) -> vision_pb2.Timing:
    timings = [row.timing for row in rows]
    return vision_pb2.Timing(
        preprocess_ms=1000 * max(timing.preprocess_s for timing in timings),
        queue_ms=1000 * max(timing.queue_s for timing in timings),
        compute_ms=1000 * max(timing.compute_s for timing in timings),
        batch_size=max(timing.batch_size for timing in timings),
    )


def _note(call: Call, model: VisionModel, rows: Sequence[Row]) -> None:
    call.span.set_attribute("hedgerow.vision.model", model.name)
    call.span.set_attribute("hedgerow.vision.batch_size", max(row.timing.batch_size for row in rows))
