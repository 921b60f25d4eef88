"""Which device an engine runs on, and what it says where there is none."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import MagicMock

import onnxruntime
import pytest

from services.vision.engines import devices, onnx
from services.vision.errors import BadModel
from services.vision.files import Source
from tests.integration.vision_engines import DEMO, manifest, noise, open_demo


@pytest.mark.parametrize(
    ("asked", "gpus", "given"),
    [
        ("auto", 0, "cpu"),
        ("auto", 2, "cuda:0"),
        ("cpu", 2, "cpu"),
        ("cuda", 1, "cuda:0"),
        ("cuda:1", 2, "cuda:1"),
    ],
)
def test_a_device_is_chosen_from_what_there_is(asked: str, gpus: int, given: str) -> None:
    assert devices.choose_device(asked, gpus, "torch") == given


@pytest.mark.parametrize(("asked", "gpus"), [("cuda", 0), ("cuda:1", 1)])
def test_a_device_that_is_not_there_is_refused(asked: str, gpus: int) -> None:
    with pytest.raises(BadModel, match=f"device: .*, got {asked}"):
        devices.choose_device(asked, gpus, "torch")


def gpu_providers(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """ONNX Runtime as if it were built for GPUs, on a machine that has none."""
    available = [*names, "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: available)


@pytest.mark.filterwarnings("ignore:Specified provider:UserWarning")
def test_a_library_for_gpus_runs_on_the_cpu_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu_providers(monkeypatch, "CUDAExecutionProvider")
    engine = open_demo(DEMO / "model.onnx", device="auto")
    assert engine.device == "cpu"
    assert engine.run(noise(2))["embedding"].shape == (2, 64)


@pytest.mark.filterwarnings("ignore:Specified provider:UserWarning")
def test_a_gpu_that_was_asked_for_is_not_replaced_by_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu_providers(monkeypatch, "CUDAExecutionProvider")
    with pytest.raises(BadModel, match="device: ONNX Runtime found no such GPU, got cuda:1"):
        open_demo(DEMO / "model.onnx", device="cuda:1")


def test_cuda_alone_does_not_lower_the_precision_of_an_onnx_file(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu_providers(monkeypatch, "CUDAExecutionProvider")
    with pytest.raises(BadModel, match=r"precision: fp32, int8, or fp16 with float16 inputs .* got fp16"):
        open_demo(DEMO / "model.onnx", device="cuda", precision="fp16")


@pytest.mark.parametrize(
    ("precision", "option"), [("fp16", "trt_fp16_enable"), ("bf16", "trt_bf16_enable"), ("int8", "trt_int8_enable")]
)
def test_tensorrt_lowers_the_precision_and_keeps_its_engines_apart_by_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str, option: str
) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    files = (DEMO / "model.onnx", DEMO / "model.int8.onnx")
    described = [manifest(file, precision=precision) for file in files]
    names, options = zip(*(onnx._tensorrt(Source.of(each.file), 1, each) for each in described), strict=True)
    assert set(names) == {"TensorrtExecutionProvider"}
    assert options[0][option] is True
    assert options[0]["device_id"] == 1
    assert options[0]["trt_profile_max_shapes"] == "image:64x3x64x64"
    folders = {each["trt_engine_cache_path"] for each in options}
    assert len(folders) == 2
    assert all(Path(folder).is_dir() and tmp_path in Path(folder).parents for folder in folders)


def test_a_plan_says_what_is_missing_where_tensorrt_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.plan").write_bytes(b"plan")
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    monkeypatch.delitem(sys.modules, "services.vision.engines.tensorrt", raising=False)
    with pytest.raises(BadModel, match=r"model\.plan needs tensorrt, which is not installed"):
        open_demo(tmp_path / "model.plan")


def test_the_stream_of_an_engine_waits_for_weights_that_are_still_being_cast(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from services.vision.engines.torch_backend import TorchBackend

    stream = MagicMock()
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"current of {device}")
    TorchBackend("torchscript", None, "cuda:1", torch.float16, manifest(DEMO / "model.ts"))
    stream.wait_stream.assert_called_once_with("current of cuda:1")
