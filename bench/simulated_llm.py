"""A simulated LLMService: no model, chosen latencies. Measures the mesh, not an engine.

HEDGEROW_SIMULATED_LLM_TOKENS=8 python -m bench.simulated_llm
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from google.protobuf.descriptor import ServiceDescriptor
from prometheus_client import REGISTRY
from pydantic import Field
from pydantic_settings import SettingsConfigDict

from bench.jagged.engine import PROMPT_TOKENS, SimulatedEngine, TallyCollector
from bench.jagged.latency import Mixture, Profile
from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2 as pb
from services.runtime.errors import NotSupported
from services.runtime.process import serve
from services.runtime.process.config import ServiceSettings
from services.runtime.rpc.boundary import Call

_SERVICE = pb.DESCRIPTOR.services_by_name["LLMService"]
_WORD = "word "


class SimulatedLlmSettings(ServiceSettings):
    """Settings of the simulated llm service."""

    model_config = SettingsConfigDict(env_prefix="HEDGEROW_SIMULATED_LLM_")

    tokens: int = Field(4, ge=1, le=100_000, description="Messages of one token each in an answer.")
    first_ms: float = Field(0, ge=0, description="Time to the first token.")
    each_ms: float = Field(0, ge=0, description="Time between two tokens.")
    load_ms: float = Field(0, ge=0, description="Time that it loads before it serves.")
    profile: Profile | None = Field(
        None, description="Jagged latencies and faults, as JSON; in the place of `first_ms` and `each_ms`."
    )
    seed: int = Field(0, description="Makes the draws of the profile repeatable.")
    slots: int = Field(0, ge=0, description="Calls that run at once; more of them wait inside. 0: all run.")
    continues: bool = Field(False, description="Whether it goes on from the beginning of an answer.")


class SimulatedLlm:
    """Answers with `word`, as often as configured; the last word and the finish are one message."""

    def __init__(self, settings: SimulatedLlmSettings):
        self._settings = settings
        plain = Profile(Mixture(settings.first_ms), settings.each_ms)
        self.engine = SimulatedEngine(settings.profile or plain, settings.slots, settings.seed)

    async def Generate(self, request: pb.GenerateRequest, call: Call) -> AsyncIterator[pb.GenerateResponse]:
        tokens = self._tokens(request)
        async with self.engine.call() as queue_ms:
            for number, due in enumerate(self.engine.schedule(tokens), 1):
                await self.engine.until(due)
                finish = self._finish(tokens, queue_ms) if number == tokens else None
                yield pb.GenerateResponse(text=_WORD, tokens=1, finish=finish)

    async def CountTokens(self, request: pb.CountTokensRequest, call: Call) -> pb.CountTokensResponse:
        return pb.CountTokensResponse(tokens=sum(len(message.content.split()) for message in request.messages))

    async def GetModel(self, request: pb.GetModelRequest, call: Call) -> pb.GetModelResponse:
        return pb.GetModelResponse(
            name="simulated",
            engine="simulated",
            running=self.engine.tally.running,
            waiting=self.engine.tally.waiting,
            continues=self._settings.continues,
        )

    def _tokens(self, request: pb.GenerateRequest) -> int:
        """How many are to be sent: as many as are asked for, else what an answer that was begun elsewhere lacks, at
        least one."""
        if request.prefix and not self._settings.continues:
            raise NotSupported("prefix: this engine cannot go on from the beginning of an answer")
        return request.sampling.max_tokens or max(1, self._settings.tokens - len(request.prefix.split()))

    def _finish(self, tokens: int, queue_ms: float) -> pb.Finish:
        usage = chat_pb2.Usage(prompt_tokens=PROMPT_TOKENS, completion_tokens=tokens)
        waited = queue_ms if self._settings.slots else None
        return pb.Finish(reason=chat_pb2.FINISH_REASON_STOP, usage=usage, queue_ms=waited)


@asynccontextmanager
async def assemble(settings: SimulatedLlmSettings) -> AsyncIterator[Mapping[ServiceDescriptor, SimulatedLlm]]:
    servicer = SimulatedLlm(settings)
    await asyncio.sleep(settings.load_ms / 1000)
    counts = TallyCollector(servicer.engine.tally)
    REGISTRY.register(counts)
    try:
        yield {_SERVICE: servicer}
    finally:
        REGISTRY.unregister(counts)


if __name__ == "__main__":
    serve.main("simulated_llm", SimulatedLlmSettings, [_SERVICE], assemble)
