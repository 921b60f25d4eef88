"""The vision clients against a scripted service over a real connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

import hedgerow
from hedgerow.vision.v1 import vision_pb2 as pb
from tests.integration.scripted import Heard, Hold, Refusal
from tests.integration.scripted_vision import TIMING, ScriptedVision, labels, serve_vision

TOOK = hedgerow.VisionTiming(1, 2, 3, 4)


@pytest.fixture
async def vision() -> AsyncIterator[ScriptedVision]:
    async with serve_vision() as served:
        yield served


@pytest.fixture
async def client(vision: ScriptedVision) -> AsyncIterator[hedgerow.AsyncVisionClient]:
    async with hedgerow.AsyncVisionClient(vision.target, api_key="secret") as connected:
        yield connected


async def video(*frames: bytes) -> AsyncIterator[bytes]:
    for frame in frames:
        yield frame


async def test_labels_come_for_each_image_in_order(
    vision: ScriptedVision, client: hedgerow.AsyncVisionClient, tmp_path: Path
) -> None:
    (tmp_path / "shape.png").write_bytes(b"png")
    results = [labels(("red circle", 0.75), ("red square", 0.25), indices=[7, 4]), labels()]
    vision.script = [pb.ClassifyResponse(results=results, model="shapes", timing=TIMING)]
    got = await client.classify([tmp_path / "shape.png", b"jpeg"], model="shapes", top_k=2, budget_ms=5_000)
    seen = (hedgerow.Label("red circle", 0.75, 7), hedgerow.Label("red square", 0.25, 4))
    assert got == hedgerow.Classification((seen, ()), "shapes", TOOK)
    images = [pb.Image(data=b"png"), pb.Image(data=b"jpeg")]
    assert vision.requests == [pb.ClassifyRequest(model="shapes", images=images, top_k=2)]
    assert vision.metadata["authorization"] == "Bearer secret"
    assert vision.time_remaining_s is not None
    assert vision.time_remaining_s < 6  # of its own budget, not of the client's 10 s; gRPC rounds up


async def test_embeddings_are_plain_numbers(vision: ScriptedVision, client: hedgerow.AsyncVisionClient) -> None:
    vision.script = [pb.EmbedResponse(embeddings=[pb.Embedding(values=[0.5, 0.25])], model="shapes", timing=TIMING)]
    assert await client.embed(b"png") == hedgerow.Embeddings(((0.5, 0.25),), "shapes", TOOK)


async def test_numpy_arrays_and_tensors_are_sent_unchanged(
    vision: ScriptedVision, client: hedgerow.AsyncVisionClient
) -> None:
    made = pb.Tensor(name="y", data_type=pb.DATA_TYPE_INT64, shape=[1, 2], data=np.array([[3, 4]]).tobytes())
    vision.script = [pb.InferResponse(outputs=[made], model="shapes", timing=TIMING)]
    array = np.arange(6, dtype=np.float32).reshape(3, 2).T  # not in row-major order in memory
    got = await client.infer({"a": array, "b": hedgerow.Tensor("uint8", (1, 2), b"\1\2")}, outputs=["y"])
    [request] = vision.requests
    first, second = request.inputs
    assert (first.name, first.data_type, list(first.shape)) == ("a", pb.DATA_TYPE_FLOAT32, [2, 3])
    assert np.array_equal(np.frombuffer(first.data, np.float32).reshape(2, 3), array)
    assert second == pb.Tensor(name="b", data_type=pb.DATA_TYPE_UINT8, shape=[1, 2], data=b"\1\2")
    assert request.outputs == ["y"]
    output = got.outputs["y"]
    assert np.array_equal(np.frombuffer(output.data, output.dtype).reshape(output.shape), [[3, 4]])


async def test_a_type_that_cannot_be_sent_is_refused_by_name(client: hedgerow.AsyncVisionClient) -> None:
    with pytest.raises(
        hedgerow.InvalidArgument, match=r"inputs\.a\.dtype: float32, .* or int64, got (float64|>f4)"
    ) as caught:
        await client.infer({"a": np.zeros(1)})
    assert caught.value.metadata["field"] == "inputs.a.dtype"
    with pytest.raises(hedgerow.InvalidArgument, match="got >f4"):
        await client.infer({"a": np.zeros(1, ">f4")})
    with pytest.raises(hedgerow.InvalidArgument, match=r"request: at most .* send fewer items at once"):
        await client.infer({"a": np.zeros((2, 1_000_000), np.float32)})


async def test_frames_are_numbered_and_their_labels_come_as_they_are_seen(
    vision: ScriptedVision, client: hedgerow.AsyncVisionClient
) -> None:
    vision.script = [
        Heard(4),
        pb.ClassifyFramesResponse(id=0, labels=labels(("red circle", 0.75)).labels, age_ms=5),
        pb.ClassifyFramesResponse(id=2, dropped=1, age_ms=7, problem="not an image"),
    ]
    stream = client.classify_frames(video(b"a", b"b", b"c"), model="shapes", top_k=1)
    assert [frame async for frame in stream] == [
        hedgerow.FrameLabels(0, (hedgerow.Label("red circle", 0.75),), 0, 5, ""),
        hedgerow.FrameLabels(2, (), 1, 7, "not an image"),
    ]
    opening, *frames = vision.requests
    assert opening == pb.ClassifyFramesRequest(model="shapes", top_k=1)
    assert [(frame.id, frame.frame.data) for frame in frames] == [(0, b"a"), (1, b"b"), (2, b"c")]


async def test_a_frame_that_cannot_be_sent_ends_the_stream_with_its_number(
    vision: ScriptedVision, client: hedgerow.AsyncVisionClient
) -> None:
    vision.script = [Hold()]
    with pytest.raises(hedgerow.InvalidArgument, match=r"frames\[1\]: at least 1 byte, got 0"):
        async for _ in client.classify_frames(video(b"a", b"")):
            pass
    await asyncio.wait_for(vision.cancelled.wait(), 20)


async def test_the_models_are_listed(vision: ScriptedVision, client: hedgerow.AsyncVisionClient) -> None:
    model = pb.Model(
        name="shapes", engine="onnx", device="cpu", precision="fp32", labels=["a", "b"], embedding_size=8,
        max_batch=16, is_default=True,
    )  # fmt: skip
    vision.script = [pb.ListModelsResponse(models=[model])]
    expected = hedgerow.VisionModel("shapes", "onnx", "cpu", "fp32", ("a", "b"), 8, 16, True)
    assert await client.models() == (expected,)


async def test_a_refusal_is_a_typed_error(vision: ScriptedVision, client: hedgerow.AsyncVisionClient) -> None:
    vision.script = [Refusal("NOT_FOUND", "no model none", "MODEL_UNKNOWN")]
    with pytest.raises(hedgerow.NotFound, match="no model none") as caught:
        await client.classify(b"png", model="none")
    assert caught.value.reason == "MODEL_UNKNOWN"


async def test_a_service_that_is_too_slow_is_named(vision: ScriptedVision) -> None:
    vision.script = [Hold()]
    async with hedgerow.AsyncVisionClient(vision.target, default_budget_ms=50) as client:
        with pytest.raises(hedgerow.DeadlineExceeded, match=r"the vision service at .* after 0\.05 s"):
            await client.classify(b"png")
