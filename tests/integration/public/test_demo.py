"""`hedgerow demo`, as a newcomer runs it."""

from __future__ import annotations

import asyncio
import sys

import pytest

# Two engines load, on a machine that may be busy.
pytestmark = pytest.mark.timeout(900)


async def test_the_demo_gets_the_answers_it_expects(pulled: None) -> None:
    command = (sys.executable, "-m", "hedgerow_cli", "demo", "Who wrote Hamlet?")
    demo = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await demo.communicate()
    assert demo.returncode == 0, output.decode()
    assert "› Who wrote Hamlet?" in output.decode()
