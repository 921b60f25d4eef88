"""A simulated LLMService that keeps what it has read of prompts, as engines with a prefix cache do.

It takes time for each block of a prompt that it has not read with the same salt, and says how much it had. In the
test's own process, behind the services' real error boundary and on a real port.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2 as pb
from services.runtime.rpc.boundary import Call
from tests.fault.faulty_llm import SERVICE, WORD, serving

_BLOCK = 128  # characters, a token each
_READ_S = 0.002  # a block


class PromptedLlm:
    """The servicer."""

    def __init__(self) -> None:
        self._read: set[tuple[str, str]] = set()  # a salt, and a prompt up to the end of a block

    async def CountTokens(self, request: pb.CountTokensRequest, call: Call) -> pb.CountTokensResponse:
        return pb.CountTokensResponse(tokens=sum(len(message.content.split()) for message in request.messages))

    async def Generate(self, request: pb.GenerateRequest, call: Call) -> AsyncIterator[pb.GenerateResponse]:
        prompt = "\0".join(message.content for message in request.messages)
        blocks = [(request.cache_salt, prompt[:end]) for end in range(_BLOCK, len(prompt) + 1, _BLOCK)]
        known = next((number for number, block in enumerate(blocks) if block not in self._read), len(blocks))
        await asyncio.sleep((len(blocks) - known) * _READ_S)
        self._read.update(blocks)
        usage = chat_pb2.Usage(prompt_tokens=len(prompt), completion_tokens=1, cached_prompt_tokens=known * _BLOCK)
        finish = pb.Finish(reason=chat_pb2.FINISH_REASON_STOP, usage=usage)
        yield pb.GenerateResponse(text=WORD, tokens=1, finish=finish)


@asynccontextmanager
async def prompted_llm() -> AsyncIterator[str]:
    """One that serves in this process; its address."""
    async with serving(SERVICE, PromptedLlm()) as address:
        yield address
