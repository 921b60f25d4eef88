"""A simulated provider in a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import PIPE, Popen


@contextmanager
def provider(*how: str) -> Iterator[tuple[Popen[str], str]]:
    """The process, and its URL; `how` it answers are options of `bench.provider`."""
    command = [sys.executable, "-m", "bench.provider", "http1", *how]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdout
        yield process, process.stdout.readline().strip()  # leaving ends its input, and so the process
