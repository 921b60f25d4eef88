"""A simulated LLMService: no model, chosen latencies. Measures the mesh, not an engine.

HEDGEROW_SIMULATED_LLM_TOKENS=8 python -m bench.simulated_llm
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from google.protobuf.descriptor import ServiceDescriptor
from pydantic import Field
from pydantic_settings import SettingsConfigDict

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2 as pb
from services.runtime import serve
from services.runtime.boundary import Call
from services.runtime.config import ServiceSettings

_SERVICE = pb.DESCRIPTOR.services_by_name["LLMService"]


class SimulatedLlmSettings(ServiceSettings):
    """Settings of the simulated llm service."""

    model_config = SettingsConfigDict(env_prefix="HEDGEROW_SIMULATED_LLM_")

    tokens: int = Field(4, ge=1, le=100_000, description="Messages of one token each in an answer.")
    first_ms: float = Field(0, ge=0, description="Time to the first token.")
    each_ms: float = Field(0, ge=0, description="Time between two tokens.")


class SimulatedLlm:
    """Says `word` as often as it is told to; the last word and the finish travel together."""

    def __init__(self, settings: SimulatedLlmSettings):
        self._settings = settings

    async def Generate(self, request: pb.GenerateRequest, call: Call) -> AsyncIterator[pb.GenerateResponse]:
        tokens = request.sampling.max_tokens or self._settings.tokens
        for number in range(tokens):
            delay_ms = self._settings.each_ms if number else self._settings.first_ms
            if delay_ms:
                await asyncio.sleep(delay_ms / 1000)
            last = number == tokens - 1
            usage = chat_pb2.Usage(prompt_tokens=8, completion_tokens=tokens)
            finish = pb.Finish(reason=chat_pb2.FINISH_REASON_STOP, usage=usage) if last else None
            yield pb.GenerateResponse(text="word ", tokens=1, finish=finish)

    async def CountTokens(self, request: pb.CountTokensRequest, call: Call) -> pb.CountTokensResponse:
        return pb.CountTokensResponse(tokens=sum(len(message.content.split()) for message in request.messages))

    async def GetModel(self, request: pb.GetModelRequest, call: Call) -> pb.GetModelResponse:
        return pb.GetModelResponse(name="simulated", engine="simulated")


@asynccontextmanager
async def assemble(settings: SimulatedLlmSettings) -> AsyncIterator[Mapping[ServiceDescriptor, SimulatedLlm]]:
    yield {_SERVICE: SimulatedLlm(settings)}


if __name__ == "__main__":
    serve.main("simulated_llm", SimulatedLlmSettings, [_SERVICE], assemble)
