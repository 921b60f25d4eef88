"""A scripted model that answers by what it is asked, so that one serves clients which ask many things in a row."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2 as pb
from hedgerow.llm.v1 import llm_pb2_grpc
from tests.integration.scripted import Refusal, serving
from tests.integration.scripted_llm import ScriptedLlm, end, words

BUSY = "Are you busy"
_BUSY_MS = 150
_ARGUMENTS = '{"city":', '"Paris"}'


class AnsweringLlm(ScriptedLlm):
    """Calls the first tool, and answers with its result; writes JSON where a format asks for it; describes pictures
    from their labels; refuses a question that begins with `BUSY` once as busy. Any other answer: `Paris.`"""

    def __init__(self) -> None:
        super().__init__()
        self._refused: set[str] = set()

    async def Generate(self, request: pb.GenerateRequest, context: Any) -> AsyncIterator[Any]:
        self.script = self._steps(request)
        async for step in self.answer(request, context):
            yield step

    def _steps(self, request: pb.GenerateRequest) -> Sequence[Any]:
        last = request.messages[-1]
        if last.role == chat_pb2.ROLE_TOOL:
            return [*words("It is ", f"{last.content}."), end()]
        if request.HasField("response_format"):
            return [*words(*_ARGUMENTS), end()]
        if request.tools and request.tool_choice.mode != chat_pb2.TOOL_MODE_NONE:
            return _call(request.tool_choice.name or request.tools[0].name)
        if last.content.startswith(BUSY) and last.content not in self._refused:
            self._refused.add(last.content)
            return [Refusal("RESOURCE_EXHAUSTED", "busy", "BUSY", retry_delay_ms=_BUSY_MS)]
        labels = next((message.content for message in request.messages if "red circle" in message.content), "")
        return [*words(*("A red ", "circle.") if labels else ("Paris", ".")), end()]


def _call(name: str) -> list[Any]:
    begun = chat_pb2.ToolCallDelta(index=0, id="call_1", name=name, arguments=_ARGUMENTS[0])
    more = chat_pb2.ToolCallDelta(index=0, arguments=_ARGUMENTS[1])
    return [pb.GenerateResponse(tool_calls=[begun]), pb.GenerateResponse(tool_calls=[more]), end("TOOL_CALLS")]


@asynccontextmanager
async def answering_llm() -> AsyncIterator[AnsweringLlm]:
    """On a free loopback port; its `target` says which."""
    async with serving(AnsweringLlm(), llm_pb2_grpc.add_LLMServiceServicer_to_server) as llm:
        yield llm
