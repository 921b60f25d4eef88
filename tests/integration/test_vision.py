"""The vision service as a process, with the demo model on its real engine."""

from __future__ import annotations

import asyncio
import io
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import yaml
from google.rpc import error_details_pb2
from grpc_status.rpc_status import aio as rpc_status
from PIL import Image

from hedgerow.channel import open_channel
from hedgerow.vision.v1 import vision_pb2, vision_pb2_grpc
from tests.conftest import Start
from tests.forked import ServiceProcess, refused_start
from tests.models import SAMPLES
from tests.waiting import until

Stub = Any  # vision_pb2_grpc.VisionServiceStub, whose asynchronous kind has no type
StartVision = Callable[..., Awaitable[tuple[ServiceProcess, Stub]]]
NAMES = {"red-circle.png": "red circle", "blue-star.jpg": "blue star", "yellow-triangle.webp": "yellow triangle"}
MODEL = "demo-vision"


@pytest.fixture
def samples(models: Path) -> dict[str, bytes]:
    """Pictures by what they show."""
    return {shown: (SAMPLES / name).read_bytes() for name, shown in NAMES.items()}


@pytest.fixture
def own_models(models: Path, tmp_path: Path) -> Path:
    """A folder with a copy of the demo model."""
    shutil.copytree(models / MODEL, tmp_path / "models" / MODEL)
    return tmp_path / "models"


@pytest.fixture
async def start_vision(start: Start, models: Path) -> AsyncIterator[StartVision]:
    """Starts a vision service and connects to it."""
    async with AsyncExitStack() as stack:

        async def start_vision(**settings: object) -> tuple[ServiceProcess, Stub]:
            process = await start("vision", **{"models_dir": str(models), **settings})
            channel = await stack.enter_async_context(open_channel(process.spec.address))
            return process, vision_pb2_grpc.VisionServiceStub(channel)

        yield start_vision


def classify(*images: bytes, top_k: int | None = None, model: str = "") -> vision_pb2.ClassifyRequest:
    encoded = [vision_pb2.Image(data=data) for data in images]
    return vision_pb2.ClassifyRequest(images=encoded, top_k=top_k, model=model)


def frame(data: bytes, number: int, **first: Any) -> vision_pb2.ClassifyFramesRequest:
    return vision_pb2.ClassifyFramesRequest(frame=vision_pb2.Image(data=data), id=number, **first)


async def refusal_of(call: Any) -> tuple[grpc.StatusCode, error_details_pb2.ErrorInfo]:
    """How a call that must fail does."""
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    info = error_details_pb2.ErrorInfo()
    (await rpc_status.from_call(call)).details[0].Unpack(info)
    return raised.value.code(), info


async def test_pictures_of_every_format_are_named(start_vision: StartVision, samples: dict[str, bytes]) -> None:
    _, vision = await start_vision()
    reply = await vision.Classify(classify(*samples.values(), top_k=3))
    assert [result.labels[0].name for result in reply.results] == list(samples)
    for result in reply.results:
        scores = [label.score for label in result.labels]
        assert len(scores) == 3
        assert scores == sorted(scores, reverse=True)
        assert scores[0] > 0.5
    assert reply.model == MODEL
    assert reply.timing.batch_size >= 1
    (model,) = (await vision.ListModels(vision_pb2.ListModelsRequest())).models
    assert (model.name, model.is_default, model.device) == (MODEL, True, "cpu")
    assert set(samples) <= set(model.labels)


async def test_similar_pictures_have_near_embeddings(start_vision: StartVision, samples: dict[str, bytes]) -> None:
    _, vision = await start_vision()
    circle, star = samples["red circle"], samples["blue star"]
    smaller = io.BytesIO()
    Image.open(io.BytesIO(circle)).convert("RGB").resize((96, 96)).save(smaller, "JPEG", quality=80)
    images = [vision_pb2.Image(data=data) for data in (circle, smaller.getvalue(), star)]
    reply = await vision.Embed(vision_pb2.EmbedRequest(images=images))
    first, alike, other = (np.array(embedding.values) for embedding in reply.embeddings)
    assert np.linalg.norm(first) == pytest.approx(1, abs=1e-5)
    assert first @ alike > 0.9 > first @ other
    (model,) = (await vision.ListModels(vision_pb2.ListModelsRequest())).models
    assert len(first) == model.embedding_size


async def test_tensors_give_what_a_picture_gives(start_vision: StartVision, samples: dict[str, bytes]) -> None:
    _, vision = await start_vision()
    seen = Image.open(io.BytesIO(samples["red circle"])).convert("RGB").resize((64, 64), Image.Resampling.BILINEAR)
    array = ((np.asarray(seen, np.float32) / 255 - 0.5) / 0.25).transpose(2, 0, 1)[None]
    tensor = vision_pb2.Tensor(
        name="image",
        data_type=vision_pb2.DATA_TYPE_FLOAT32,
        shape=array.shape,
        data=np.ascontiguousarray(array, "<f4").tobytes(),
    )
    reply = await vision.Infer(vision_pb2.InferRequest(inputs=[tensor], outputs=["probabilities"]))
    (output,) = reply.outputs
    probabilities = np.frombuffer(output.data, "<f4").reshape(output.shape)[0]
    named = (await vision.Classify(classify(samples["red circle"]))).results[0].labels[0]
    assert probabilities.max() == pytest.approx(named.score, abs=0.02)
    tensor.data = b"1234"
    code, info = await refusal_of(vision.Infer(vision_pb2.InferRequest(inputs=[tensor])))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert info.metadata["field"] == "inputs[0].data"


async def test_of_too_many_frames_the_newest_are_classified(
    start_vision: StartVision, samples: dict[str, bytes]
) -> None:
    process, vision = await start_vision()
    call = vision.ClassifyFrames()
    await call.write(frame(samples["red circle"], 0, model=MODEL, top_k=1))
    first = await call.read()
    assert (first.id, first.labels[0].name, first.dropped) == (0, "red circle", 0)
    await call.write(frame(b"no picture", 1))
    bad = await call.read()
    assert (bad.id, list(bad.labels)) == (1, [])
    assert "frame: a PNG, JPEG, WebP, GIF or AVIF" in bad.problem

    count = 300

    async def send() -> None:
        for number in range(2, 2 + count):
            await call.write(frame(samples["blue star"], number))
        await call.done_writing()

    sending, replies = asyncio.create_task(send()), []
    while (reply := await call.read()) is not grpc.aio.EOF:
        replies.append(reply)
    await sending
    assert replies[-1].id == 1 + count  # the newest is never the one that is dropped
    assert [reply.id for reply in replies] == sorted(reply.id for reply in replies)
    assert len(replies) + sum(reply.dropped for reply in replies) == count
    assert {reply.labels[0].name for reply in replies} == {"blue star"}
    assert await call.code() is grpc.StatusCode.OK
    assert await process.stop() == 0


async def test_more_than_may_be_in_hand_is_refused_with_a_time_to_come_back(
    start_vision: StartVision, samples: dict[str, bytes]
) -> None:
    _, vision = await start_vision(max_queue=4, max_images=4)
    calls = [vision.Classify(classify(*[samples["red circle"]] * 4), timeout=20) for _ in range(20)]
    ended = await asyncio.gather(*calls, return_exceptions=True)
    refused = [call for call, end in zip(calls, ended, strict=True) if isinstance(end, grpc.aio.AioRpcError)]
    assert 0 < len(refused) < len(calls)
    for call in refused:
        assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        details = (await rpc_status.from_call(call)).details
        assert any(detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for detail in details)


async def test_a_model_is_exchanged_without_losing_a_call(
    start_vision: StartVision, own_models: Path, samples: dict[str, bytes]
) -> None:
    process, vision = await start_vision(models_dir=own_models, rescan_ms=200)
    description = own_models / MODEL / "model.yaml"
    content = yaml.safe_load(description.read_text())
    exchanged = asyncio.Event()
    served = 0

    async def ask() -> None:
        nonlocal served
        while not exchanged.is_set():
            reply = await vision.Classify(classify(samples["red circle"]), timeout=20)
            assert reply.results[0].labels[0].name == "red circle"
            served += 1

    async def models() -> dict[str, vision_pb2.Model]:
        return {model.name: model for model in (await vision.ListModels(vision_pb2.ListModelsRequest())).models}

    asking = [asyncio.create_task(ask()) for _ in range(4)]
    content["batching"]["max_size"] = 16
    description.write_text(yaml.safe_dump(content))
    await until(models, holds=lambda now: now[MODEL].max_batch == 16)
    description.write_text("file: nothing")  # broken: the old one stays
    await until(lambda: "the one that serves stays" in process.log.read_text())
    description.write_text(yaml.safe_dump(content))
    shutil.copytree(own_models / MODEL, own_models / "another")
    await until(models, holds=lambda now: "another" in now)
    reply = await vision.Classify(classify(samples["blue star"], model="another"))
    assert (reply.results[0].labels[0].name, reply.model) == ("blue star", "another")
    shutil.rmtree(own_models / "another")
    await until(models, holds=lambda now: "another" not in now)
    before = served
    # A call that failed ends this at once, and says why below.
    await until(lambda: served >= before + 10 or any(task.done() for task in asking))
    exchanged.set()
    await asyncio.gather(*asking)  # raises for a call that failed
    assert await process.stop() == 0


async def test_on_sigterm_calls_in_flight_and_streams_come_to_their_end(
    start_vision: StartVision, samples: dict[str, bytes]
) -> None:
    process, vision = await start_vision()
    stream, silent = vision.ClassifyFrames(), vision.ClassifyFrames()
    await stream.write(frame(samples["red circle"], 1))
    assert (await stream.read()).labels[0].name == "red circle"
    await silent.wait_for_connection()
    calls = [vision.Classify(classify(*list(samples.values()) * 10), timeout=20) for _ in range(6)]
    await calls[0]
    process.signal(signal.SIGTERM)
    for reply in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(reply, grpc.aio.AioRpcError):  # came after the server had stopped listening, or just then
            assert reply.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        else:
            assert len(reply.results) == 30
    assert await stream.read() is grpc.aio.EOF
    assert await silent.read() is grpc.aio.EOF
    assert await process.stop() == 0
    assert "Traceback" not in process.log.read_text()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "models_dir: a folder with at least 1 model that can be loaded, got"),
        ({"default_model": "other"}, "default_model: one of demo-vision, got other"),
    ],
)
async def test_without_a_model_to_serve_with_it_does_not_start(
    own_models: Path, tmp_path: Path, settings: dict[str, str], message: str
) -> None:
    if not settings:
        (own_models / MODEL / "labels.txt").write_text("too\nfew\n")
    ended = await refused_start("vision", **{"models_dir": own_models, **settings})
    assert ended.code == 2
    assert message in ended.err
    assert "Traceback" not in ended.err
    if not settings:
        assert "labels: one for each of" in ended.err
