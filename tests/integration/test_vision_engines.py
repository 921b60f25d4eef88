"""The engines, on the files of the demo model."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from services.vision.engine import Arrays, VisionEngine
from services.vision.engines import CheckedEngine, onnx
from services.vision.errors import BadModel, EngineFailed
from services.vision.files import Source
from tests.integration.vision_engines import DEMO, FILES, OUTPUTS, manifest, noise, open_demo
from tests.models import SAMPLES

KINDS = {".onnx": "onnx", ".ts": "torchscript", ".pt2": "export"}


@pytest.fixture(scope="module")
def engines() -> Iterator[dict[str, VisionEngine]]:
    opened = {name: open_demo(DEMO / name, precision="int8" if "int8" in name else "fp32") for name in FILES}
    yield opened
    for engine in opened.values():
        engine.close()


@pytest.mark.parametrize("name", FILES)
def test_an_engine_says_what_it_is(engines: dict[str, VisionEngine], name: str) -> None:
    engine = engines[name]
    precision = "int8" if "int8" in name else "fp32"
    assert (engine.kind, engine.device, engine.precision) == (KINDS[Path(name).suffix], "cpu", precision)


@pytest.mark.parametrize("count", [1, 2, 7, 32, 3])
@pytest.mark.parametrize("name", FILES)
def test_batches_may_have_any_size(engines: dict[str, VisionEngine], name: str, count: int) -> None:
    found = engines[name].run(noise(count))
    assert {key: array.shape for key, array in found.items()} == {
        "probabilities": (count, 48),
        "embedding": (count, 64),
    }
    assert np.allclose(found["probabilities"].sum(-1), 1, atol=1e-3)
    assert np.allclose(np.linalg.norm(found["embedding"], axis=-1), 1, atol=1e-3)


@pytest.mark.parametrize("name", ["model.ts", "model.pt2"])
def test_engines_agree_on_unquantized_files(engines: dict[str, VisionEngine], name: str) -> None:
    expected, found = engines["model.onnx"].run(noise(9)), engines[name].run(noise(9))
    for output in OUTPUTS:
        np.testing.assert_allclose(found[output], expected[output], atol=1e-4)


@pytest.mark.parametrize("name", FILES)
def test_an_item_has_the_same_result_alone_and_in_a_batch(engines: dict[str, VisionEngine], name: str) -> None:
    batch = noise(5)
    together = engines[name].run(batch)["embedding"]
    alone = [engines[name].run({"image": batch["image"][i : i + 1]})["embedding"][0] for i in range(5)]
    np.testing.assert_allclose(together, alone, atol=1e-4)


@pytest.mark.parametrize("name", FILES)
def test_the_samples_are_named(engines: dict[str, VisionEngine], name: str) -> None:
    labels = (DEMO / "labels.txt").read_text().splitlines()
    for sample in ("red-circle.png", "blue-star.jpg", "yellow-triangle.webp"):
        with Image.open(SAMPLES / sample) as picture:
            pixels = np.asarray(picture.convert("RGB").resize((64, 64), Image.Resampling.BILINEAR), np.float32)
        image = ((pixels / 255 - 0.5) / 0.25).transpose(2, 0, 1)[None].copy()
        best = engines[name].run({"image": image})["probabilities"][0]
        assert labels[int(best.argmax())] == sample.partition(".")[0].replace("-", " ")


@pytest.mark.parametrize("name", FILES)
def test_results_are_not_changed_by_later_runs_of_the_engine(engines: dict[str, VisionEngine], name: str) -> None:
    first = engines[name].run(noise(2))["embedding"]
    copy = first.copy()
    engines[name].run(noise(2, seed=1))
    assert np.array_equal(first, copy)


@pytest.mark.parametrize("name", FILES)
def test_an_array_over_the_bytes_of_a_message_is_taken_as_it_is(engines: dict[str, VisionEngine], name: str) -> None:
    image = np.frombuffer(noise(2)["image"].tobytes(), np.float32).reshape(2, 3, 64, 64)
    assert not image.flags.writeable
    assert engines[name].run({"image": image})["embedding"].shape == (2, 64)


@pytest.mark.parametrize("suffix", [".onnx", ".ts", ".pt2"])
@pytest.mark.parametrize("damage", ["empty", "cut", "other"])
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, suffix: str, damage: str) -> None:
    file = tmp_path / f"broken{suffix}"
    whole = (DEMO / f"model{suffix}").read_bytes()
    file.write_bytes({"empty": b"", "cut": whole[: len(whole) // 2], "other": b"not a model" * 100}[damage])
    with pytest.raises(BadModel, match=f"broken{suffix}"):
        open_demo(file)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("model.onnx", {"precision": "fp16"}, "precision: fp32 or int8 .* got fp16"),
        ("model.onnx", {"precision": "bf16"}, "precision: .* got bf16"),
        ("model.onnx", {"precision": "int8"}, "precision: int8 needs a file with quantized layers"),
        ("model.ts", {"precision": "fp16"}, "precision: fp32 or bf16 .* got fp16"),
        ("model.ts", {"precision": "int8"}, "precision: int8 needs a file with quantized layers"),
        ("model.pt2", {"precision": "int8"}, "precision: fp32 or bf16 .* got int8"),
        ("model.onnx", {"input": {"name": "picture"}}, "input: the file has image, got picture"),
        ("model.onnx", {"input": {"shape": (3, 32, 32)}}, "input: image has the shape"),
        ("model.onnx", {"input": {"dtype": "uint8"}}, "input: image is tensor.float. in"),
        ("model.onnx", {"outputs": {"embedding": "vector"}}, "outputs: the file has embedding, probabilities, got"),
        ("model.ts", {"outputs": {"probabilities": "probabilities"}}, "does not run on zeros"),
        ("model.ts", {"input": {"shape": (4, 64, 64)}}, "does not run on zeros"),
        ("model.pt2", {"input": {"shape": (3, 32, 32)}}, "does not run on zeros"),
        ("labels.txt", {}, "file: .onnx, .pt2, .ts, .plan, got labels.txt"),
    ],
)
def test_options_that_the_file_or_machine_lacks_are_refused_at_load(
    name: str, arguments: dict[str, Any], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(BadModel, match=message):
        open_demo(DEMO / name, **arguments)


@pytest.mark.parametrize("name", ["model.ts", "model.pt2"])
def test_bf16_on_the_cpu_is_near_fp32_and_comes_out_as_float32(engines: dict[str, VisionEngine], name: str) -> None:
    engine = open_demo(DEMO / name, precision="bf16")
    found = engine.run(noise(3))["embedding"]
    engine.close()
    assert engine.precision == "bf16"
    assert found.dtype == np.float32
    assert ((found * engines[name].run(noise(3))["embedding"]).sum(-1) > 0.99).all()


@pytest.mark.parametrize("name", FILES)
def test_a_closed_engine_fails(name: str) -> None:
    engine = open_demo(DEMO / name, precision="int8" if "int8" in name else "fp32")
    engine.close()
    engine.close()
    with pytest.raises(EngineFailed, match="closed"):
        engine.run(noise(1))


def test_a_failing_model_is_unavailable_and_logs_its_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = open_script(tmp_path, "Picky")
    with pytest.raises(EngineFailed, match=r"^the model failed on a batch of 2$"):
        engine.run({"image": np.ones((2, 4), np.float32)})
    assert "a batch of 2 failed on torchscript, cpu" in caplog.text
    assert engine.run({"image": np.zeros((2, 4), np.float32)})["same"].shape == (2, 4)


def test_a_failed_batch_gives_its_memory_back_while_the_error_is_held() -> None:
    """As after CUDA is out of memory: each image of the batch is tried again alone."""
    held: list[weakref.ref[np.ndarray]] = []

    class Failing:
        kind, device, precision = "torchscript", "cuda:0", "fp32"

        def compute(self, inputs: Arrays) -> Arrays:
            activations = np.zeros(4)
            if len(inputs["image"]) > 1:
                held.append(weakref.ref(activations))
                raise MemoryError
            return {name: np.zeros((1, 2)) for name in OUTPUTS}

    engine = CheckedEngine(Failing(), manifest(DEMO / "model.ts"))
    with pytest.raises(EngineFailed) as failed:
        engine.run(noise(2))
    assert isinstance(failed.value.__cause__, MemoryError)
    assert [each() for each in held] == [None]


def test_an_output_that_is_no_batch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadModel, match="with 1 items, got"):
        open_script(tmp_path, "Flat")


def test_a_model_may_name_its_outputs_in_a_dictionary(tmp_path: Path) -> None:
    engine = open_script(tmp_path, "Named")
    assert engine.run({"image": np.ones((3, 4), np.float32)})["same"].tolist() == [[2.0] * 4] * 3


def open_script(folder: Path, name: str) -> VisionEngine:
    import torch  # takes two seconds, of every worker's if it were above

    from tests.integration import torch_modules

    module: torch.nn.Module = getattr(torch_modules, name)()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(module.eval()).save(str(folder / "module.ts"))
    return open_demo(folder / "module.ts", input={"shape": (4,)}, outputs={"embedding": "same"})


def test_bound_inputs_and_outputs_give_what_plain_ones_give(engines: dict[str, VisionEngine]) -> None:
    session = onnx._session(Source.of(DEMO / "model.onnx"), [("CPUExecutionProvider", {})], 1)
    backend = onnx.OnnxBackend(session, "cpu:0", "fp32", OUTPUTS)  # bound, in the memory that is there
    for count in (3, 1):
        found, expected = backend.compute(noise(count)), engines["model.onnx"].run(noise(count))
        for output in OUTPUTS:
            np.testing.assert_array_equal(found[output], expected[output])
