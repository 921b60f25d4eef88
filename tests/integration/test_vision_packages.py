"""Parts of a `.pt2` that torch gets to load, and parts that it never gets."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest

from services.vision.engines.package import check_expression, plain
from services.vision.errors import BadModel
from services.vision.files import Source
from tests import hostile_models
from tests.hostile_models import Members
from tests.models import MODELS

DEMO = MODELS / "demo-vision" / "model.pt2"
GRAPH = "model/models/model.json"


@pytest.mark.parametrize("change", hostile_models.HOSTILE, ids=lambda change: change.__name__)
def test_code_is_found_that_torch_would_run(tmp_path: Path, change: Callable[[Members, Path], None]) -> None:
    mark = tmp_path / "ran"
    file = hostile_models.write(DEMO, tmp_path / "hostile.pt2", change, mark)
    with pytest.raises(BadModel, match=r"hostile\.pt2.*, got "):
        plain(Source.of(file))
    assert not mark.exists()
    _load_without_care(file)
    assert mark.exists()  # or the file above would prove nothing


def _load_without_care(file: Path) -> None:
    import torch

    logging.disable()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.export.load(file)
        except Exception:
            pass
        finally:
            logging.disable(logging.NOTSET)


def test_torch_is_given_no_pickle_at_all() -> None:
    with ZipFile(io.BytesIO(plain(Source.of(DEMO)))) as archive:
        assert archive.read("model/data/sample_inputs/model.pt") == b""
        names = [name for name in archive.namelist() if not name.endswith("sample_inputs/model.pt")]
        assert not any(".pt" in name or ".pkl" in name for name in names)
        graph = json.loads(archive.read(GRAPH))
    assert graph["guards_code"] == []
    assert not any(node["metadata"] for node in graph["graph_module"]["graph"]["nodes"])


@pytest.mark.parametrize(
    ("member", "content"),
    [
        ("model/data/aotinductor/model/model.so", b"\x7fELF"),
        ("model/data/constants/custom_obj_0", b"PK"),
        ("model/data/weights/WEIGHT_0", b"0000"),
        ("model/../weights/weight_0", b"0000"),
        ("serialized_state_dict.pt", b"PK"),
    ],
)
def test_a_member_that_no_plain_archive_has_is_refused_by_name(tmp_path: Path, member: str, content: bytes) -> None:
    file = hostile_models.write(DEMO, tmp_path / "odd.pt2", lambda members, _: members.update({member: content}), DEMO)
    with pytest.raises(BadModel, match=f"odd.pt2: .*, got {member}"):
        plain(Source.of(file))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("torch.ops.aten.relu.default", "torch.os.system"),
        ("torch.ops.aten.relu.default", "torch.ops.aten.save.default"),
        ("torch.ops.aten.relu.default", "_operator.methodcaller"),
        ("torch.ops.aten.relu.default", "#extension"),
        ('"name": "conv2d"', '"name": "x\\nimport os"'),
        ('\\"builtins.tuple\\", \\"context', '\\"collections.defaultdict\\", \\"default_factory_module'),
    ],
)
def test_a_graph_that_names_more_than_operators_is_refused(tmp_path: Path, old: str, new: str) -> None:
    def change(members: Members, _: Path) -> None:
        assert old in members[GRAPH].decode()
        members[GRAPH] = members[GRAPH].decode().replace(old, new, 1).encode()

    file = hostile_models.write(DEMO, tmp_path / "odd.pt2", change, DEMO)
    with pytest.raises(BadModel, match=r"odd\.pt2, models/model\.json: .*, got "):
        plain(Source.of(file))


@pytest.mark.parametrize(
    "text",
    [
        "Symbol('s0', positive=True, integer=True)",
        "FloorDiv(Symbol('s0', integer=True), Integer(2))",
        "Add(Mul(Integer(-1), Symbol('u0')), Integer(3))",
        "Eq(s0, 4) & (s1 > 2)",
    ],
)
def test_sizes_may_be_computed(text: str) -> None:
    check_expression(text)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "Symbol('s0').__class__",
        "Symbol(**{})",
        "[s0 for s0 in s1]",
        "lambda: 0",
        "sympify('1')",
        "Symbol('a b')",
        "eval",
        "s0[0]",
        "f'{s0}'",
        "1" * 1_001,
        "(",
        "",
    ],
)
def test_an_expression_that_says_more_than_arithmetic_is_refused(text: str) -> None:
    with pytest.raises(BadModel, match="an expression of sizes, got"):
        check_expression(text)
