"""A scripted llm service: it plays back messages instead of computing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2 as pb
from hedgerow.llm.v1 import llm_pb2_grpc
from tests.integration.scripted import Scripted, serving


class ScriptedLlm(Scripted, llm_pb2_grpc.LLMServiceServicer):
    """Plays messages."""

    Generate = Scripted.answer

    async def CountTokens(self, request: Any, context: Any) -> pb.CountTokensResponse:
        """As many as there are words."""
        return pb.CountTokensResponse(tokens=sum(len(message.content.split()) for message in request.messages))


@asynccontextmanager
async def scripted_llm(address: str = "127.0.0.1:0", *, model: ScriptedLlm | None = None) -> AsyncIterator[ScriptedLlm]:
    """At that address, by default on a free loopback port; its `target` says which."""
    async with serving(model or ScriptedLlm(), llm_pb2_grpc.add_LLMServiceServicer_to_server, address) as llm:
        yield llm


def words(*texts: str) -> list[pb.GenerateResponse]:
    """A message for each."""
    return [pb.GenerateResponse(text=text, tokens=1) for text in texts]


def end(reason: str = "STOP", **fields: Any) -> pb.GenerateResponse:
    """The last message."""
    usage = chat_pb2.Usage(prompt_tokens=7, completion_tokens=2)
    return pb.GenerateResponse(
        finish=pb.Finish(reason=chat_pb2.FinishReason.Value(f"FINISH_REASON_{reason}"), usage=usage), **fields
    )
