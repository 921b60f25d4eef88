"""An engine in a package of its own, with nothing of ours changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from services.llm import engines
from services.llm.config import LlmSettings
from services.llm.errors import BadEngineSettings

ENGINE = """
class Parrot:
    def __init__(self, settings):
        self.name = settings.public_name

async def start(settings, progress):
    progress("a parrot needs no model")
    return Parrot(settings)
"""


@pytest.fixture(autouse=True)
def _package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_engine.py").write_text(ENGINE)
    monkeypatch.syspath_prepend(tmp_path)


async def test_an_engine_is_named_by_its_import_path() -> None:
    said: list[str] = []
    engine: Any = await engines.start(LlmSettings(engine="their_engine:start"), said.append)
    assert (engine.name, said) == ("their_engine", ["a parrot needs no model"])


@pytest.mark.parametrize("engine", ["their_nothing:start", "their_engine:nothing"])
async def test_an_engine_that_is_not_there_is_refused_by_name(engine: str) -> None:
    with pytest.raises(BadEngineSettings, match=f"engine: one of vllm, openai, anthropic, or .* got {engine}"):
        await engines.start(LlmSettings(engine=engine), print)
