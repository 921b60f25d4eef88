"""A model's answer read to its end, for stages that judge it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from services.gateway.answer import model_call
from services.gateway.answer.draft import Draft
from services.gateway.generation.shared import Reading


@dataclass(slots=True)
class Tried:
    """What a model has said by now."""

    pieces: list[str] = field(default_factory=list)  # of the text
    finish_reason: chat_pb2.FinishReason = chat_pb2.FINISH_REASON_UNSPECIFIED
    logprobs: list[float] = field(default_factory=list)  # of its tokens, as far as they are told
    usage: chat_pb2.Usage = field(default_factory=chat_pb2.Usage)
    written: int = 0  # tokens

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def take(self, item: llm_pb2.GenerateResponse) -> None:
        """More of it."""
        self.pieces.append(item.text)
        self.logprobs += [token.logprob for token in item.logprobs]
        self.written += item.tokens
        if item.HasField("finish"):
            self.finish_reason = item.finish.reason
            self.usage.CopyFrom(item.finish.usage)


Say = Callable[[Sequence[llm_pb2.GenerateResponse]], Awaitable[bool]]


async def hear(draft: Draft, reading: Reading, tried: Tried, say: Say | None = None) -> None:
    """Read into `tried`, to the model's end, and put it on the account. `say` is given what has come, each time that
    more has, and returns whether that is enough."""
    try:
        while not tried.finish_reason and (items := await reading.reader.take()):
            for item in items:
                tried.take(item)
            if say and await say(items):
                return
    finally:
        model_call.settle(draft, reading)


async def hear_all(draft: Draft, reading: Reading) -> Tried:
    """The whole of it."""
    tried = Tried()
    await hear(draft, reading, tried)
    return tried
