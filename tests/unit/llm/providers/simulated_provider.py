"""A simulated OpenAI-compatible provider: gives scripted answers, without a network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from services.llm.config import LlmSettings
from services.llm.engine import Chunk, Feature, Finish
from services.llm.providers.config import OpenAISettings
from services.llm.providers.openai import OpenAIEngine
from services.llm.providers.transport.wire import Broken

KEY = "sk-very-secret"


def event(text: str = "", finish_reason: str | None = None, usage: dict[str, Any] | None = None) -> str:
    """One chat.completion.chunk as a server-sent event."""
    choices = [{"index": 0, "delta": {"content": text}, "finish_reason": finish_reason}]
    return f"data: {json.dumps({'choices': [] if usage else choices, 'usage': usage})}\n\n"


def delta(finish_reason: str | None = None, **delta: Any) -> str:
    """One with another delta than text."""
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta, 'finish_reason': finish_reason}]})}\n\n"


def text_of(chunks: Sequence[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks)


def end_of(chunks: Sequence[Chunk]) -> Finish:
    """Fields of the last chunk only, about the whole answer."""
    *before, last = chunks
    assert last.finish
    assert not any(chunk.finish for chunk in before)
    return last.finish


DONE = "data: [DONE]\n\n"
USAGE = {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 8}}


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    url: str
    headers: Mapping[str, str]
    content: bytes


@dataclass
class SimulatedProvider:
    """`pieces` are sent one by one as the body; an exception among them breaks the connection there, among `refusals`
    before there is an answer. `refuses`: by what a body holds, the status and the JSON in the place of an answer."""

    pieces: tuple[str | Broken, ...] = (event("Hello"), event(".", "stop"), event(usage=USAGE), DONE)
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})
    hold: asyncio.Event | None = None  # waited for before the last piece
    refusals: list[Broken] = field(default_factory=list)
    refuses: dict[bytes, tuple[int, Any]] = field(default_factory=dict)
    silent: bool = False  # never answers
    requests: list[Asked] = field(default_factory=list)
    dropped: int = 0  # answers that were not wanted any more
    open: int = 0  # answers under way
    most_open: int = 0

    def engine(self, *, continues: bool = False, own: Mapping[str, Any] | None = None, **settings: Any) -> OpenAIEngine:
        """An engine connected to it; `own` are further settings of its kind."""
        usual: dict[str, Any] = {"base_url": "http://provider.test/v1", "model": "big", "api_key": KEY}
        if continues:
            usual["features"] = (*OpenAISettings().features, Feature.PREFIX)
        openai = OpenAISettings(**{**usual, **(own or {})})
        return OpenAIEngine(LlmSettings(engine="openai", openai=openai, **settings), self)

    @property
    def body(self) -> dict[str, Any]:
        """The body of the last request."""
        body: dict[str, Any] = json.loads(self.requests[-1].content)
        return body

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, *, on_new: bool = False
    ) -> _Reply:
        self.requests.append(Asked(method, url, headers, body))
        if self.silent:
            await asyncio.Event().wait()
        if self.refusals:
            raise self.refusals.pop(0)
        refused = [(status, (json.dumps(said),)) for part, (status, said) in self.refuses.items() if part in body]
        return _Reply(self, *(refused or [(self.status, self.pieces)])[0])

    async def close(self) -> None:
        pass


class _Reply:
    def __init__(self, provider: SimulatedProvider, status: int, pieces: tuple[str | Broken, ...]):
        self._provider, self._left = provider, list(pieces)
        self.status, self.headers, self.ended = status, provider.headers, False
        provider.open += 1
        provider.most_open = max(provider.open, provider.most_open)

    async def read(self) -> bytes:
        await asyncio.sleep(0)  # as a network, it lets others have a turn
        if self._provider.hold and len(self._left) == 1:
            await self._provider.hold.wait()
        piece = self._left.pop(0) if self._left else ""
        if isinstance(piece, Broken):
            raise piece
        if not piece:
            self.ended = True
            self._provider.open -= 1
        return piece.encode()

    async def drop(self) -> None:
        self._provider.dropped += 1
        self._provider.open -= 1
