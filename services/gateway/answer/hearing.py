"""A model's answer read to its end, for stages that judge it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from services.gateway.answer import asking
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


async def hear(
    draft: Draft, reading: Reading, tried: Tried
) -> AsyncGenerator[Sequence[llm_pb2.GenerateResponse], None]:
    """Read to the end into `tried`, and put it on the account. Gives what has come, each time that more has."""
    try:
        while not tried.finish_reason and (items := await reading.reader.take()):
            for item in items:
                tried.take(item)
            yield items
    finally:
        asking.settle(draft, reading)


async def hear_all(draft: Draft, reading: Reading) -> Tried:
    """The whole of it."""
    tried = Tried()
    async for _ in hear(draft, reading, tried):
        pass
    return tried
