"""Derives the SDK's blocking clients from its asyncio clients: `make sync`. A contract test holds them to it.

Word by word, as encode/httpcore does with its own `unasync.py`; the differences of gRPC's two APIs (connections,
waiting, sending) are in `_base*.py` and `_sending*.py`, which offer the same names.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SDK = Path(__file__).parents[1] / "hedgerow"
DERIVED = {
    "_aio.py": "_client.py",
    "_answer_stream_aio.py": "_answer_stream.py",
    "_audio_aio.py": "_audio.py",
    "_collection_aio.py": "_collection.py",
    "_vision_aio.py": "_vision.py",
    "_streams_aio.py": "_streams.py",
}

_RULES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"AsyncGenerator\[(.+), None\]", r"Iterator[\1]"),
        (r"\bAsyncGenerator\b", "Iterator"),
        (r"\bAsync(?=[A-Z])", ""),
        (r"\basync (?=def|for|with)", ""),
        (r"\bawait ", ""),
        (r"\b(_answer_stream|_base|_sending|_streams)_aio\b", r"\1"),
        (r"\b__a(iter|next|enter|exit)__", r"__\1__"),
        (r"\baiter\(", "iter("),
        (r"\bStopAsyncIteration\b", "StopIteration"),
        # Words of the documentation.
        (r"of the asyncio clients", "of the clients without an event loop"),
        (r"asyncio client", "client for programs without an event loop"),
        (r"\btasks of one loop\b", "threads"),
        (r"\b(task of its own|another task)\b", lambda found: found[0].replace("task", "thread")),
        (r"are functions or coroutine functions, called in order", "are called in order, in the caller's thread"),
        (r"are functions or coroutine functions", "are called in the caller's thread"),
    )
]


def derived(source: Path) -> str:
    """The blocking module for an asyncio one."""
    text = source.read_text()
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    title, rest = text.split("\n", 1)
    output = f"{title}\n\n# Written by `make sync` from {source.name}; change that.\n{rest}"
    return _tidy(output, SDK / DERIVED[source.name])


def _tidy(text: str, path: Path) -> str:
    """Imports in their order, each once, and lines as they would be written."""
    ruff = [sys.executable, "-m", "ruff"]
    for command in (["check", "--quiet", "--fix-only", "--unsafe-fixes", "--select", "I,F401,UP028"], ["format", "-q"]):
        done = [*ruff, *command, "--stdin-filename", str(path), "-"]
        text = subprocess.run(done, input=text, capture_output=True, text=True, check=True).stdout
    return text


if __name__ == "__main__":
    for source, target in DERIVED.items():
        (SDK / target).write_text(derived(SDK / source))
