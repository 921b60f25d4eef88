"""proto ↔ domain, nothing more."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from urllib.parse import unquote

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from services.llm import validation
from services.llm.engine import Chunk, Constraint, Engine, Finish, FinishReason, Message, Request, Sampling
from services.llm.genai import Recorder
from services.runtime.errors import InvalidInput
from services.runtime.rpc.authorization import TENANT_HEADER
from services.runtime.rpc.boundary import Call

_ROLES = {chat_pb2.ROLE_SYSTEM: "system", chat_pb2.ROLE_USER: "user", chat_pb2.ROLE_ASSISTANT: "assistant"}
_REASONS = {
    FinishReason.STOP: chat_pb2.FINISH_REASON_STOP,
    FinishReason.LENGTH: chat_pb2.FINISH_REASON_LENGTH,
    FinishReason.INTERRUPTED: chat_pb2.FINISH_REASON_INTERRUPTED,
}


class LLMServicer:
    """Serves `hedgerow.llm.v1.LLMService` with one engine."""

    def __init__(self, engine: Engine):
        self._engine = engine

    async def Generate(
        self, request: llm_pb2.GenerateRequest, call: Call
    ) -> AsyncGenerator[llm_pb2.GenerateResponse, None]:
        wanted = to_request(request, unquote(call.header(TENANT_HEADER) or ""))
        validation.check(wanted)
        model = self._engine.describe()
        recorder = Recorder(call.span, model, wanted)
        async with aclosing(self._engine.generate(wanted, call.deadline)) as chunks:
            async for chunk in chunks:
                recorder.saw(chunk)
                yield to_response(chunk, tell_cached=model.salts or not wanted.cache_salt)

    async def CountTokens(self, request: llm_pb2.CountTokensRequest, call: Call) -> llm_pb2.CountTokensResponse:
        messages = _to_messages(request.messages)
        validation.check_messages(messages)
        return llm_pb2.CountTokensResponse(tokens=await self._engine.count_tokens(messages, call.deadline))

    async def GetModel(self, request: llm_pb2.GetModelRequest, call: Call) -> llm_pb2.GetModelResponse:
        model, load = self._engine.describe(), self._engine.load()
        return llm_pb2.GetModelResponse(
            name=model.name,
            engine=model.engine,
            context_tokens=model.context_tokens,
            max_tokens=model.max_tokens,
            speculation=model.speculation,
            running=load.running,
            waiting=load.waiting,
            continues=model.continues,
        )


def to_request(request: llm_pb2.GenerateRequest, tenant: str = "") -> Request:
    """What the engine is asked. Raises InvalidInput for a role that is not one."""
    return Request(
        _to_messages(request.messages),
        _to_sampling(request.sampling),
        _to_constraint(request.response_format),
        request.prefix,
        request.cache_salt,
        tenant,
    )


def _to_messages(messages: Iterable[chat_pb2.Message]) -> tuple[Message, ...]:
    return tuple(_to_message(index, message) for index, message in enumerate(messages))


def _to_message(index: int, message: chat_pb2.Message) -> Message:
    role = _ROLES.get(message.role)
    if role is None:
        raise InvalidInput(f"messages[{index}].role", "system, user or assistant", message.role)
    return Message(role, message.content)  # type: ignore[arg-type]


def _to_sampling(sampling: chat_pb2.Sampling) -> Sampling:
    return Sampling(
        temperature=sampling.temperature if sampling.HasField("temperature") else None,
        top_p=sampling.top_p if sampling.HasField("top_p") else None,
        max_tokens=sampling.max_tokens if sampling.HasField("max_tokens") else None,
        stop=tuple(sampling.stop),
        seed=sampling.seed if sampling.HasField("seed") else None,
    )


def _to_constraint(response_format: chat_pb2.ResponseFormat) -> Constraint | None:
    match response_format.WhichOneof("constraint"):
        case "json_schema":
            return Constraint("json_schema", response_format.json_schema)
        case "regex":
            return Constraint("regex", response_format.regex)
        case "json_object" if response_format.json_object:
            return Constraint("json_object")
    return None


def to_response(chunk: Chunk, *, tell_cached: bool = True) -> llm_pb2.GenerateResponse:
    """One message of the stream. How much of a prompt was cached is for nobody to know where it may be others' prompts
    that were."""
    finish = _to_finish(chunk.finish) if chunk.finish else None
    if finish and not tell_cached:
        finish.usage.cached_prompt_tokens = 0
    return llm_pb2.GenerateResponse(text=chunk.text, tokens=chunk.tokens, finish=finish)


def _to_finish(finish: Finish) -> llm_pb2.Finish:
    usage = chat_pb2.Usage(
        prompt_tokens=finish.usage.prompt_tokens,
        completion_tokens=finish.usage.completion_tokens,
        cached_prompt_tokens=finish.usage.cached_prompt_tokens,
        drafted_tokens=finish.usage.drafted_tokens,
        accepted_tokens=finish.usage.accepted_tokens,
    )
    return llm_pb2.Finish(reason=_REASONS[finish.reason], usage=usage, queue_ms=finish.queue_ms)
