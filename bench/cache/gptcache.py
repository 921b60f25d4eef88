"""GPTCache on the same pairs: from PyPI, in an environment and a process of its own, with the parts that its documents
begin with.

Those are SQLite and FAISS, `SearchDistanceEvaluation` and a `similarity_threshold` of 0.8, which for unit vectors is a
cosine of 0.6. Two things are not its own: the embeddings are this cache's, by the same engine, and it has room for all
that is stored, where it would throw the oldest of more than 1,000 away.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.cache import gptcache_process
from bench.environments import environment
from services.cache import conversion
from services.cache.config import CacheSettings

VERSION = "0.1.44"
_LONGEST_S = 3_600.0
_ROOT = Path(__file__).parents[2]
_LINE_BYTES = 2**26
Progress = Callable[[str], None]


class GptCacheFailed(Exception):
    """Its process broke off; the text has its last words."""


@dataclass(frozen=True, slots=True)
class Looked:
    """Of each question asked the number of the stored one whose answer it got, None for a miss, and how long it took in
    milliseconds."""

    hits: Sequence[int | None]
    ms: Sequence[float]


async def look_up(stored: Sequence[str], asked: Sequence[str], settings: CacheSettings, progress: Progress) -> Looked:
    """Store all of the first, then look the others up. Raises `NotInstalled`, `GptCacheFailed`, `NoModel`."""
    python = await asyncio.to_thread(lambda: environment("gptcache", requirements(), progress) / "python")
    model = settings.model or conversion.converted(settings.model_cache.expanduser())
    with tempfile.TemporaryDirectory() as folder:
        order = {
            "folder": folder,
            "model": str(model),
            "max_tokens": settings.max_embedded_tokens,
            "stored": list(stored),
            "asked": list(asked),
        }
        told = await _ran(python, order, progress)
    return Looked(told["hits"], told["ms"])


def requirements() -> str:
    """What its environment holds: itself, what it would fetch by itself while it runs, and this cache's engine."""
    ours = (f"{name}=={version(name)}" for name in ("faiss-cpu", "ctranslate2", "tokenizers", "numpy"))
    return "\n".join((f"gptcache=={VERSION}", "sqlalchemy==2.1.9", *ours)) + "\n"


async def _ran(python: Path, order: Mapping[str, object], progress: Progress) -> Mapping[str, Any]:
    """What its process says at the end; each line before is progress."""
    environ = {**os.environ, "PYTHONPATH": str(_ROOT)}
    command = (
        str(python),
        "-P",
        gptcache_process.__file__,
    )  # by its file: the packages around it want more than it has
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, stderr=pipe, env=environ, limit=_LINE_BYTES
    )
    assert process.stdin
    assert process.stdout
    assert process.stderr
    words = asyncio.create_task(process.stderr.read())
    try:
        async with asyncio.timeout(_LONGEST_S):
            process.stdin.write(json.dumps(order).encode() + b"\n")
            await process.stdin.drain()
            async for line in process.stdout:
                said = json.loads(line)
                if "hits" in said:
                    return dict(said)
                progress(f"GPTCache: {said['progress']}")
    except (TimeoutError, OSError):
        pass
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        last = (await words).decode(errors="replace")[-2_000:]
    raise GptCacheFailed(f"GPTCache ended or took more than {_LONGEST_S:g} s:\n{last}")
