"""The contract over a fake engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from opentelemetry.trace import INVALID_SPAN
from PIL import Image

from hedgerow.vision.v1 import vision_pb2
from services.runtime.deadline import Deadline
from services.runtime.errors import InvalidInput
from services.runtime.rpc.boundary import Call
from services.vision import outputs
from services.vision.errors import EngineFailed
from services.vision.servicer import VisionServicer
from tests.unit.vision.fake_engine import LABELS, SIZE
from tests.unit.vision.files import encoded
from tests.unit.vision.test_repository import FakeEngines

CALL = Call((), Deadline.never(), INVALID_SPAN)
RED = encoded(Image.new("RGB", (20, 10), (255, 0, 0)), "PNG")
YELLOW = encoded(Image.new("RGB", (20, 10), (255, 255, 0)), "WEBP")
BLACK = encoded(Image.new("RGB", (20, 10)), "JPEG")


def images(*data: bytes) -> list[vision_pb2.Image]:
    return [vision_pb2.Image(data=one) for one in data]


async def test_images_are_named_best_first_in_their_order(servicer: VisionServicer, engines: FakeEngines) -> None:
    sizes = engines.opened[0].sizes
    sizes.clear()
    request = vision_pb2.ClassifyRequest(images=images(RED, YELLOW, BLACK), top_k=2)
    reply = await servicer.Classify(request, CALL)
    assert [result.labels[0].name for result in reply.results] == ["bright", "green", "dark"]
    assert [len(result.labels) for result in reply.results] == [2, 2, 2]
    assert reply.results[0].labels[0].score == pytest.approx(1, abs=0.01)
    assert reply.model == "m"
    assert sum(sizes) == 3  # in one batch, unless a picture took longer to prepare than the others wait
    assert reply.timing.batch_size == max(sizes)
    assert reply.timing.preprocess_ms > 0
    assert reply.timing.compute_ms > 0


@pytest.mark.parametrize(("wanted", "given"), [({}, [1]), ({"top_k": 9}, [1, 0, 2])])
async def test_one_label_is_returned_unless_more_are_requested_and_exist(
    servicer: VisionServicer, wanted: dict[str, int], given: list[int]
) -> None:
    reply = await servicer.Classify(vision_pb2.ClassifyRequest(images=images(RED), **wanted), CALL)
    assert [label.index for label in reply.results[0].labels] == given


async def test_the_labels_of_all_images_of_a_request_are_bounded(
    servicer: VisionServicer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "MAX_LABELS", 5)
    with pytest.raises(InvalidInput, match="top_k: at most 2 for 2 images in one request, got 3"):
        await servicer.Classify(vision_pb2.ClassifyRequest(images=images(RED, YELLOW), top_k=3), CALL)


async def test_embeddings_have_unit_length(servicer: VisionServicer) -> None:
    reply = await servicer.Embed(vision_pb2.EmbedRequest(images=images(RED, YELLOW)), CALL)
    vectors = np.array([embedding.values for embedding in reply.embeddings])
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1])
    assert vectors[1] == pytest.approx([0.5**0.5, 0.5**0.5, 0], abs=0.01)


async def test_a_vector_without_a_direction_is_a_failure_of_the_engine(servicer: VisionServicer) -> None:
    with pytest.raises(EngineFailed, match="got zeros"):
        await servicer.Embed(vision_pb2.EmbedRequest(images=images(encoded(Image.new("RGB", (8, 8)), "PNG"))), CALL)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (vision_pb2.ClassifyRequest(), "images: 1 to 8, got 0"),
        (vision_pb2.ClassifyRequest(images=images(*[RED] * 9)), "images: 1 to 8, got 9"),
        (vision_pb2.ClassifyRequest(images=images(RED), top_k=0), "top_k: 1 or more, got 0"),
        (vision_pb2.ClassifyRequest(images=images(RED), top_k=-1), "top_k: 1 or more, got -1"),
        (vision_pb2.ClassifyRequest(images=images(RED), model="plain"), "model: one that takes images, got plain"),
        (
            vision_pb2.ClassifyRequest(images=images(RED, b"no pic")),
            r"images\[1\]: a PNG, JPEG, WebP, GIF or AVIF, got 6 bytes",
        ),
        (vision_pb2.ClassifyRequest(images=images(RED, RED + b"PK")), r"images\[1\]: a PNG and nothing after it"),
    ],
)
async def test_a_request_that_cannot_be_served_is_refused_by_its_field(
    servicer: VisionServicer, request_: vision_pb2.ClassifyRequest, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        await servicer.Classify(request_, CALL)


async def test_models_are_listed_with_their_properties(servicer: VisionServicer) -> None:
    models = (await servicer.ListModels(vision_pb2.ListModelsRequest(), CALL)).models
    assert [(model.name, model.is_default, model.max_batch, model.embedding_size) for model in models] == [
        ("m", True, 4, 3),
        ("plain", False, 4, 3),
    ]
    assert tuple(models[0].labels) == LABELS
    assert (models[0].engine, models[0].device, models[0].precision) == ("fake", "cpu", "fp32")


def tensor(**changes: Any) -> vision_pb2.Tensor:
    values: dict[str, Any] = {
        "name": "image",
        "data_type": vision_pb2.DATA_TYPE_FLOAT32,
        "shape": [2, 3, SIZE, SIZE],
        "data": np.full((2, 3, SIZE, SIZE), 0.5, "<f4").tobytes(),
    }
    return vision_pb2.Tensor(**(values | changes))


async def test_tensors_are_passed_through_unchanged(servicer: VisionServicer, engines: FakeEngines) -> None:
    reply = await servicer.Infer(vision_pb2.InferRequest(model="plain", inputs=[tensor()]), CALL)
    assert [output.name for output in reply.outputs] == ["probabilities", "embedding"]
    embedding = reply.outputs[1]
    assert (embedding.data_type, list(embedding.shape)) == (vision_pb2.DATA_TYPE_FLOAT32, [2, 3])
    assert np.frombuffer(embedding.data, "<f4") == pytest.approx([0.5] * 6)
    assert reply.timing.batch_size == 2
    only = vision_pb2.InferRequest(model="plain", inputs=[tensor()], outputs=["embedding"])
    assert [output.name for output in (await servicer.Infer(only, CALL)).outputs] == ["embedding"]


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        ([], [], "inputs: 1, which is image, got 0"),
        ([tensor(), tensor()], [], "inputs: 1, which is image, got 2"),
        ([tensor(name="x")], [], r"inputs\[0\].name: image, got x"),
        ([tensor(data_type=0)], [], r"inputs\[0\].data_type: DATA_TYPE_FLOAT32, got DATA_TYPE_UNSPECIFIED"),
        ([tensor(data_type=99)], [], r"inputs\[0\].data_type: DATA_TYPE_FLOAT32, got 99"),
        ([tensor(shape=[])], [], r"inputs\[0\].shape: \[1 to 8, 3, 8, 8\], got \[\]"),
        ([tensor(shape=[2, 3, 8, 7])], [], r"got \[2, 3, 8, 7\]"),
        ([tensor(shape=[-2, 3, 8, 8])], [], r"got \[-2, 3, 8, 8\]"),
        ([tensor(shape=[2**62, 3, 8, 8])], [], r"inputs\[0\].shape"),
        ([tensor(data=b"1234")], [], r"inputs\[0\].data: 1536 bytes, got 4 bytes"),
        ([tensor()], ["embedding", "other"], r"outputs\[1\]: one of probabilities, embedding, got other"),
    ],
)
async def test_a_tensor_the_model_does_not_take_is_refused_by_its_field(
    servicer: VisionServicer, inputs: Sequence[vision_pb2.Tensor], outputs: list[str], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        await servicer.Infer(vision_pb2.InferRequest(inputs=inputs, outputs=outputs), CALL)
