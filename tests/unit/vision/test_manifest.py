"""A model's folder says what it is, or why it is none."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from services.vision.errors import BadModel
from services.vision.manifest import read

GOOD = {
    "file": "model.onnx",
    "input": {"name": "image", "shape": [3, 8, 8]},
    "outputs": {"logits": "out"},
    "labels": "labels.txt",
    "preprocessing": {"resize": [8, 8], "mean": [0.5, 0.5, 0.5]},
}


def folder(path: Path, names: str = "red\nblue\n", **changes: object) -> Path:
    (path / "model.yaml").write_text(yaml.safe_dump({**GOOD, **changes}))
    (path / "model.onnx").touch()
    (path / "labels.txt").write_text(names)
    return path


def test_a_folder_is_read_with_its_labels_and_defaults(tmp_path: Path) -> None:
    manifest, labels = read(folder(tmp_path, "crane\ncrane\n", batching={"preferred": [8, 4]}))
    assert labels == ("crane", "crane"), "names may repeat"
    assert manifest.file == tmp_path / "model.onnx"
    assert (manifest.device, manifest.precision, manifest.input.dtype) == ("auto", "fp32", "float32")
    assert manifest.sizes == (1, 4, 8, 32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"precision": "fp8"}, r"model.yaml: precision: .*, got 'fp8'"),
        ({"devise": "cpu"}, r"model.yaml: devise: Extra inputs are not permitted, got 'cpu'"),
        ({"device": "cuda:x"}, r"device: String should match pattern .*, got 'cuda:x'"),
        ({"batching": {"max_size": 0}}, r"batching.max_size: .* greater than or equal to 1, got 0"),
        ({"batching": {"max_size": 4, "preferred": [8]}}, r"batching: preferred: 1 to max_size \(4\)"),
        ({"preprocessing": {"resize": [9, 8]}}, r"preprocessing makes \[3, 9, 8\]: .*, got \[3, 8, 8\]"),
        ({"preprocessing": {"resize": 9, "crop": [9, 8]}}, r"preprocessing makes \[3, 9, 8\]"),
        ({"preprocessing": {"resize": 8}}, r"crop: required with resize: 8; for example crop: \[224, 224\]"),
        (
            {"preprocessing": {"resize": 7, "crop": [8, 8]}},
            r"crop: at most the resized picture, \[7, 7\], got \[8, 8\]",
        ),
        ({"preprocessing": {"resize": [0, 8]}}, "resize, crop: at least 1 pixel"),
        ({"preprocessing": {"resize": 8, "crop": [8, 8], "fit": "crop"}}, "fit: only with resize as .*, got crop"),
        ({"preprocessing": {"resize": [9, 9], "crop": [8, 8], "fit": "pad"}}, "fit: only .* without crop, got pad"),
        ({"preprocessing": {"resize": [8, 8], "interpolation": "cubic"}}, "interpolation: .*'bicubic'.*, got 'cubic'"),
        ({"activation": "tanh"}, "activation: .*'softmax', 'sigmoid' or 'none', got 'tanh'"),
        ({"activation": "none"}, "activation: softmax or sigmoid with logits, none with probabilities"),
        ({"outputs": {"probabilities": "out"}, "activation": "softmax"}, "activation: softmax or sigmoid with logits"),
        ({"preprocessing": {"resize": [8, 8], "std": [1, 0, 1]}}, r"std: greater than 0"),
        ({"outputs": {"scores": "out"}}, r"outputs.scores"),
        ({"outputs": {"logits": "a", "probabilities": "b"}}, "probabilities or logits, not both"),
        ({"outputs": {"embedding": "a"}}, "labels: only with probabilities or logits"),
        ({"file": "missing.onnx"}, "file: a file that exists, got missing.onnx"),
        ({"file": "../model.onnx"}, "file: a file in the model's folder, got ../model.onnx"),
        ({"labels": "/etc/passwd"}, "labels: a file in the model's folder, got /etc/passwd"),
        ({"input": {"name": "image", "shape": [-1, 3, 8]}}, "shape: each dimension at least 1"),
    ],
)
def test_a_mistake_is_named_with_its_file_field_and_value(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(BadModel, match=message) as refusal:
        read(folder(tmp_path, **changes))
    assert str(tmp_path / "model.yaml") in str(refusal.value)


@pytest.mark.parametrize(
    "content", [b"file: [", b"made: 2026-02-30\n", b"[" * 500, b"file: \xed\xa0\x80", b"\xff\xfe", b"[1, 2]", b""]
)
def test_an_invalid_manifest_is_refused_with_its_file(tmp_path: Path, content: bytes) -> None:
    (folder(tmp_path) / "model.yaml").write_bytes(content)
    with pytest.raises(BadModel, match=r"model\.yaml: "):
        read(tmp_path)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("red\n\nblue", "none on line 2"),
        ("", "1 to 65536 names, got 0"),
        ("a\n" * 65_537, "1 to 65536 names, got 65537"),
        ("red\n" + 513 * "e", "names of at most 512 characters, got 513 on line 2"),
    ],
)
def test_a_mistake_in_the_labels_is_named_with_its_line(tmp_path: Path, names: str, message: str) -> None:
    with pytest.raises(BadModel, match=message):
        read(folder(tmp_path, names))


@pytest.mark.parametrize(
    ("changes", "activation"),
    [
        ({}, "softmax"),
        ({"activation": "sigmoid"}, "sigmoid"),
        ({"outputs": {"probabilities": "out"}}, "none"),
        ({"outputs": {"probabilities": "out"}, "activation": "none"}, "none"),
    ],
)
def test_logits_get_a_softmax_unless_the_manifest_says_otherwise(
    tmp_path: Path, changes: dict[str, object], activation: str
) -> None:
    assert read(folder(tmp_path, **changes))[0].activated == activation


@pytest.mark.parametrize(
    "preprocessing",
    [{"resize": 256, "crop": [224, 224]}, {"resize": [256, 240], "crop": [224, 224]}, {"resize": [224, 224]}],
)
def test_the_input_has_the_size_of_the_crop_or_else_of_the_resize(
    tmp_path: Path, preprocessing: dict[str, object]
) -> None:
    manifest, _ = read(folder(tmp_path, input={"name": "image", "shape": [3, 224, 224]}, preprocessing=preprocessing))
    assert manifest.preprocessing
    assert manifest.preprocessing.size == (224, 224)
