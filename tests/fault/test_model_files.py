"""Model files with code in them."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from hedgerow.channel import open_channel
from hedgerow.vision.v1 import vision_pb2, vision_pb2_grpc
from tests import hostile_models
from tests.fault.mesh import Processes
from tests.fault.report import Report, Row
from tests.forked import ServiceProcess
from tests.models import MODELS, SAMPLES
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]
_DEMO = MODELS / "demo-vision"
_CIRCLE = (SAMPLES / "red-circle.png").read_bytes()
_GOOD = "good"


def _put(models: Path, name: str, file: str) -> Path:
    """The demo's model under a name of its own, with one of the demo's files."""
    folder = models / name
    folder.mkdir(parents=True)
    said = yaml.safe_load((_DEMO / "model.yaml").read_text()) | {"file": file}
    if "int8" not in file:
        said["precision"] = "fp32"
    shutil.copy(_DEMO / "labels.txt", folder)
    shutil.copy(_DEMO / file, folder)
    (folder / "model.yaml").write_text(yaml.safe_dump(said, sort_keys=False))
    return folder / file


async def _serves_the_good_one(vision: ServiceProcess, row: Row, model: str = _GOOD) -> None:
    request = vision_pb2.ClassifyRequest(images=[vision_pb2.Image(data=_CIRCLE)], model=model)
    async with open_channel(vision.spec.address) as channel:
        stub: Any = vision_pb2_grpc.VisionServiceStub(channel)
        for _ in range(10):
            reply = await stub.Classify(request, timeout=20)
            assert reply.results[0].labels[0].name == "red circle"
            row.tally(ok=1)


async def _models(vision: ServiceProcess) -> set[str]:
    async with open_channel(vision.spec.address) as channel:
        stub: Any = vision_pb2_grpc.VisionServiceStub(channel)
        return {model.name for model in (await stub.ListModels(vision_pb2.ListModelsRequest(), timeout=20)).models}


async def _logged(vision: ServiceProcess, text: str) -> None:
    await until(lambda: text in vision.log.read_text(), 30)


async def test_a_file_with_code_in_it_is_refused_and_the_others_are_served(
    starter: Processes, report: Report, tmp_path: Path
):
    models, mark = tmp_path / "models", tmp_path / "ran"
    _put(models, _GOOD, "model.pt2")
    _put(models, "scripted", "model.ts")
    hostile = {change.__name__: change for change in hostile_models.HOSTILE}
    for name, change in hostile.items():
        hostile_models.write(_DEMO / "model.pt2", _put(models, name, "model.pt2"), change, mark)
    with report.case(36, "`.pt2` files with code in them, a `.ts` that is not on the list") as row:
        engines = ["onnx", "export"]
        vision = await starter.start("vision", models_dir=str(models), default_model=_GOOD, engines=engines)
        assert await _models(vision) == {_GOOD}
        for name in hostile:
            await _logged(vision, f"{name}: not loaded: {models / name / 'model.yaml'}: file: model.pt2")
        await _logged(
            vision, "file: of the engines onnx, export (the setting `engines`), got model.ts, for torchscript"
        )
        await _serves_the_good_one(vision, row)
        began = time.monotonic()
        name, change = next(iter(hostile.items()))
        hostile_models.write(_DEMO / "model.pt2", models / _GOOD / "model.pt2", change, mark)  # while it serves
        await _logged(vision, "got one that calls 'posix system'; the one that serves stays")
        row.detected(time.monotonic() - began, 2)
        await _serves_the_good_one(vision, row)
        assert not mark.exists()
        row.tally(failed=len(hostile) + 2)


async def test_a_file_that_is_not_the_one_that_was_pinned_is_refused(
    starter: Processes, report: Report, tmp_path: Path
):
    models = tmp_path / "models"
    good, other = _put(models, _GOOD, "model.onnx"), _put(models, "other", "model.int8.onnx")
    digests = {str(f.relative_to(models)): hashlib.sha256(f.read_bytes()).hexdigest() for f in (good, other)}
    with report.case(36, "a model file changes that is pinned by its digest, and one comes that is not") as row:
        vision = await starter.start("vision", models_dir=str(models), default_model=_GOOD, digests=digests)
        assert await _models(vision) == {_GOOD, "other"}
        shutil.copy(_DEMO / "model.onnx", other)
        found = hashlib.sha256(other.read_bytes()).hexdigest()
        pinned = f"digests: other/model.int8.onnx with the SHA-256 {digests['other/model.int8.onnx']}, got {found}"
        _put(models, "third", "model.onnx")
        await _logged(vision, f"{pinned}; the one that serves stays")
        await _logged(vision, "the setting `digests` names, got third/model.onnx")
        await asyncio.gather(*(_serves_the_good_one(vision, row, name) for name in (_GOOD, "other")))
        row.tally(failed=2)
