"""Runs the command line as its users do: a process, its output and its exit code. A test that only waits for its
end gets a forked process; a test that writes to it or interrupts it, a fresh one."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process

from tests import forked


async def launch(*arguments: str, **environment: str) -> Process:
    """Start `hedgerow …` afresh, with pipes."""
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hedgerow_cli", *arguments,
        stdin=PIPE, stdout=PIPE, stderr=PIPE, env={**os.environ, **environment},
    )  # fmt: skip


async def run(*arguments: str, stdin: str = "", **environment: str) -> forked.Ended:
    """`hedgerow …`, from its start to its end."""
    return await forked.run("hedgerow_cli", *arguments, stdin=stdin, **environment)


def cli(*arguments: str) -> tuple[int | None, str]:
    """(exit code, stdout) of `hedgerow …`, blocking."""
    return forked.run_blocking("hedgerow_cli", *arguments)[:2]
