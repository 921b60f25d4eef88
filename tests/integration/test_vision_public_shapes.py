"""The vision service with models shaped like public ones: names that repeat, thousands of classes, a crop."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

import hedgerow
from hedgerow.channel import open_channel
from hedgerow.vision.v1 import vision_pb2, vision_pb2_grpc
from tests.conftest import Start

SIZE, CLASSES, MANY = 8, 4, 21_841
NAMES = ("crane", "maillot", "crane", "maillot")
BIAS = (0.0, 1.0, 3.0, 2.0)  # what the small model answers to anything, as logits
PHOTOGRAPHS = Path(__file__).parents[1] / "photographs"


def write(folder: Path, weights: np.ndarray, bias: np.ndarray, names: tuple[str, ...], **manifest: Any) -> None:
    """A model of one layer: the mean of each colour, times `weights`, and `bias`."""
    folder.mkdir(parents=True)
    constants = {"weights": weights.astype(np.float32), "bias": bias.astype(np.float32)}
    graph = helper.make_graph(
        [
            helper.make_node("GlobalAveragePool", ["image"], ["pooled"]),
            helper.make_node("Flatten", ["pooled"], ["means"]),
            helper.make_node("Gemm", ["means", "weights", "bias"], ["logits"]),
        ],
        "model",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, SIZE, SIZE])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", len(bias)])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "model.onnx")
    described = {
        "file": "model.onnx",
        "input": {"name": "image", "shape": [3, SIZE, SIZE]},
        "outputs": {"logits": "logits"},
        "labels": "labels.txt",
        "preprocessing": {"resize": 10, "crop": [SIZE, SIZE], "interpolation": "bicubic"},
    }
    (folder / "model.yaml").write_text(yaml.safe_dump({**described, **manifest}))
    (folder / "labels.txt").write_text("".join(f"{name}\n" for name in names))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    nothing, bias = np.zeros((3, CLASSES)), np.array(BIAS)
    write(folder / "twins", nothing, bias, NAMES)
    write(folder / "tags", nothing, bias - 2, NAMES, activation="sigmoid")
    write(folder / "colours", 20 * np.eye(3), np.zeros(3), ("red", "green", "blue"))
    write(
        folder / "many", np.zeros((3, MANY)), np.arange(MANY) / 1_000, tuple(f"class {n % 9_000}" for n in range(MANY))
    )
    return folder


@pytest.fixture
async def address(start: Start, made: Path) -> str:
    process = await start("vision", models_dir=str(made))
    return process.spec.address


@pytest.fixture
async def vision(address: str) -> AsyncIterator[hedgerow.AsyncVisionClient]:
    async with hedgerow.AsyncVisionClient(address) as client:
        yield client


def picture(kind: str = "PNG", size: tuple[int, int] = (40, 20)) -> bytes:
    Image.new("RGB", size, "red").save(buffer := io.BytesIO(), kind)
    return buffer.getvalue()


async def test_classes_of_one_name_differ_by_their_index(vision: hedgerow.AsyncVisionClient) -> None:
    (labels,) = (await vision.classify(picture(), model="twins", top_k=4)).results
    assert [(label.index, label.name) for label in labels] == [
        (2, "crane"),
        (3, "maillot"),
        (1, "maillot"),
        (0, "crane"),
    ]
    assert sum(label.score for label in labels) == pytest.approx(1)


async def test_with_a_sigmoid_each_class_has_a_probability_of_its_own(vision: hedgerow.AsyncVisionClient) -> None:
    (labels,) = (await vision.classify(picture(), model="tags", top_k=4)).results
    expected = [1 / (1 + np.exp(2 - value)) for value in sorted(BIAS, reverse=True)]
    assert [label.score for label in labels] == pytest.approx(expected)


async def test_thousands_of_classes_are_named_at_once(vision: hedgerow.AsyncVisionClient) -> None:
    seen = await vision.classify([picture()] * 3, model="many", top_k=MANY)
    assert [[label.index for label in labels] for labels in seen.results] == [list(range(MANY))[::-1]] * 3
    with pytest.raises(hedgerow.InvalidArgument, match="top_k: at most 16384 for 4 images in one request, got 21841"):
        await vision.classify([picture()] * 4, model="many", top_k=MANY)
    (many,) = [model for model in await vision.models() if model.name == "many"]
    assert len(many.labels) == MANY


async def test_the_answer_to_64_images_with_1000_labels_each_is_one_message(address: str) -> None:
    request = vision_pb2.ClassifyRequest(images=[vision_pb2.Image(data=picture())] * 64, model="many", top_k=1_000)
    async with open_channel(address) as channel:
        reply = await vision_pb2_grpc.VisionServiceStub(channel).Classify(request)
    assert {len(result.labels) for result in reply.results} == {1_000}


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "AVIF"])
async def test_every_format_is_decoded_to_its_colours(vision: hedgerow.AsyncVisionClient, kind: str) -> None:
    (labels,) = (await vision.classify(picture(kind), model="colours")).results
    assert labels[0].name == "red"


async def test_only_the_centre_is_seen(vision: hedgerow.AsyncVisionClient) -> None:
    banner = Image.new("RGB", (400, 20), "blue")
    banner.paste("green", (192, 0, 208, 20))
    banner.save(buffer := io.BytesIO(), "PNG")
    (labels,) = (await vision.classify(buffer.getvalue(), model="colours")).results
    assert labels[0].name == "green"


@pytest.mark.parametrize(
    "file", sorted(path.name for path in PHOTOGRAPHS.iterdir() if path.suffix not in (".md", ".json"))
)
async def test_photographs_of_all_formats_are_read(vision: hedgerow.AsyncVisionClient, file: str) -> None:
    seen = await vision.classify(PHOTOGRAPHS / file, model="colours", top_k=3)
    assert len(seen.results[0]) == 3
