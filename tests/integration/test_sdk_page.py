"""The examples of `docs/sdk.md` run, one after the other, against a real gateway before a scripted model."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from tests.integration.http_gateway import HttpGateway
from tests.integration.scripted_llm import ScriptedLlm, end, words

_PAGE = Path(__file__).parents[2] / "docs/sdk.md"
_TARGET = "127.0.0.1:50050"


async def test_the_examples_run(gateway: HttpGateway, llm: ScriptedLlm, capsys: pytest.CaptureFixture[str]) -> None:
    llm.script = [*words('{"name": "Paris.", "inhabitants": 2000000}'), end()]  # an answer to all of them
    examples = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    program = "\n".join(examples).replace(_TARGET, gateway.process.spec.address)
    assert _TARGET in "".join(examples)
    await asyncio.to_thread(exec, compile(program, str(_PAGE), "exec"), {})
    assert "Paris." in capsys.readouterr().out
