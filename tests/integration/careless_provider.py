"""A simulated provider that speaks OpenAI's chat completions and does not care for `response_format`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.recording_provider import Events, RecordingProvider, recording_provider


@dataclass
class CarelessProvider:
    """Its `url`, and the bodies that it was `asked`."""

    provider: RecordingProvider

    def __post_init__(self) -> None:
        self.says(("It is five.", "stop"))

    @property
    def url(self) -> str:
        return self.provider.url

    @property
    def asked(self) -> list[dict[str, Any]]:
        return [each.body for each in self.provider.asked]

    def says(self, *answers: tuple[str, str]) -> None:
        """Answer with these texts and finish reasons in turn from now on, the last one again and again."""
        self.provider.asked.clear()
        self.provider.says = lambda *_: _events(*answers[min(len(self.provider.asked), len(answers)) - 1])


def _events(text: str, finish: str) -> Events:
    same = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "careless"}
    pieces = (text[: len(text) // 2], text[len(text) // 2 :])
    choices: list[dict[str, Any]] = [{"delta": {"content": piece}, "finish_reason": None} for piece in pieces]
    choices.append({"delta": {}, "finish_reason": finish})
    usage = {"prompt_tokens": 7, "completion_tokens": 2}
    return [*({**same, "choices": [{"index": 0, **each}]} for each in choices), {**same, "choices": [], "usage": usage}]


@asynccontextmanager
async def careless_provider() -> AsyncIterator[CarelessProvider]:
    """On a free loopback port."""
    async with recording_provider() as provider:
        yield CarelessProvider(provider)
