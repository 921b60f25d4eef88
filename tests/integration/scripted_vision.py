"""A scripted vision service: it plays back labels instead of looking."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from hedgerow.vision.v1 import vision_pb2 as pb
from hedgerow.vision.v1 import vision_pb2_grpc
from tests.integration.scripted import Refusal, Scripted, serving


class ScriptedVision(Scripted, vision_pb2_grpc.VisionServiceServicer):
    """Plays responses; a picture that `refuses` names by its content is refused whatever the script says."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses: dict[bytes, Refusal] = {}

    async def Classify(self, request: pb.ClassifyRequest, context: object) -> pb.ClassifyResponse:
        for image in request.images:
            if image.data in self.refuses:
                await self.refuses[image.data].send(context)
        return await self.reply(request, context)  # type: ignore[no-any-return]

    Embed = Infer = ListModels = Scripted.reply
    ClassifyFrames = Scripted.talk


@asynccontextmanager
async def serve_vision(address: str = "127.0.0.1:0") -> AsyncIterator[ScriptedVision]:
    """At that address, by default on a free loopback port; its `target` says which."""
    async with serving(ScriptedVision(), vision_pb2_grpc.add_VisionServiceServicer_to_server, address) as vision:
        yield vision


def labels(*pairs: tuple[str, float], indices: Sequence[int] = ()) -> pb.Labels:
    """Best first; without `indices`, the index of each class is 0."""
    places = indices or [0] * len(pairs)
    return pb.Labels(
        labels=[pb.Label(name=name, score=score, index=at) for (name, score), at in zip(pairs, places, strict=True)]
    )


TIMING = pb.Timing(preprocess_ms=1, queue_ms=2, compute_ms=3, batch_size=4)
