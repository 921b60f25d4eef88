"""The llm service of one model, and an answer that it is writing.

Text crosses as raw bytes, read one message at a time: gRPC's own deserializer and iterator cost more than the relay
itself (docs/benchmarks.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from hedgerow.channel import answer
from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from services.gateway.upstream.assignment import Fault
from services.gateway.upstream.call_errors import ERRORS, translate
from services.runtime.errors import ServiceError, Unavailable
from services.runtime.telemetry import Metadata

_SERVICE = "/hedgerow.llm.v1.LLMService"
M = TypeVar("M", bound=Message)
WHOLE = (  # the model's own ends
    chat_pb2.FINISH_REASON_STOP,
    chat_pb2.FINISH_REASON_LENGTH,
    chat_pb2.FINISH_REASON_TOOL_CALLS,
    chat_pb2.FINISH_REASON_CONTENT_FILTER,
)


class Completion:
    """An answer that a model is writing. `finish` is there with the last message."""

    def __init__(self, call: Any, who: str):
        self._call, self._who = call, who
        self._problem: ServiceError | None = None  # what the next to read gets
        self.finish: llm_pb2.Finish | None = None
        self.reported_finish: llm_pb2.Finish | None = None  # what it has used, also where it has not come to its end

    async def read(self) -> llm_pb2.GenerateResponse:
        """The next message. Raises `ServiceError` also where it ends without its last."""
        if self._problem:
            raise self._problem
        try:
            raw = await self._call.read()
            if raw is grpc.aio.EOF:
                raise Unavailable(f"{self._who}: ended without a finish reason")
            message: llm_pb2.GenerateResponse = _parsed(llm_pb2.GenerateResponse, raw)
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            raise (self._problem or Unavailable(f"{self._who}: the connection was closed")) from None
        except grpc.aio.AioRpcError as error:
            raise translate(error, self._who) from None
        except DecodeError:
            self._call.cancel()
            raise Unavailable(f"{self._who}: sent a malformed message") from None
        if message.HasField("finish"):
            self._take_finish(message)
        return message

    async def ended(self) -> None:
        """Wait for the status, which comes after the last message and has no news."""
        try:
            await self._call.read()
        except grpc.aio.AioRpcError:
            pass
        except asyncio.CancelledError:
            if _is_cancelled():
                raise

    def cancel(self, problem: ServiceError | None = None) -> None:
        """Stop the engine. A read now or later raises `problem`."""
        self._problem = problem
        self._call.cancel()

    async def suffer(self, fault: Fault) -> None:
        """Have done to it what a drill asks for."""
        await asyncio.sleep(fault.delay_s)
        if fault.code is not None:
            self._call.cancel()
            raise ERRORS.get(fault.code, Unavailable)(f"{self._who}: {fault.code.name}: a drill")

    def _take_finish(self, message: llm_pb2.GenerateResponse) -> None:
        self.reported_finish = llm_pb2.Finish()
        self.reported_finish.CopyFrom(message.finish)
        if message.finish.reason in WHOLE:
            self.finish = message.finish
        else:
            self._problem = Unavailable(f"{self._who}: the engine stopped in mid-answer")
            message.ClearField("finish")


def _parsed(cls: type[M], raw: bytes | M) -> M:
    """The received message: bytes over gRPC, the message itself from a service of this process. Raises
    `DecodeError`."""
    return cls.FromString(raw) if isinstance(raw, bytes) else raw


def _is_cancelled() -> bool:
    """Inside `except CancelledError`: gRPC raises that also for a cancelled call, while the task itself goes on."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class Llm:
    def __init__(self, channel: grpc.aio.Channel, model: str):
        self._generate: Any = channel.unary_stream(
            f"{_SERVICE}/Generate", request_serializer=llm_pb2.GenerateRequest.SerializeToString
        )
        self._channel, self._model = channel, model

    async def connect(self, within_s: float) -> None:
        """Wait for the connection. Raises `Unavailable` where there is none `within_s`."""
        try:
            async with asyncio.timeout(within_s):
                await self._channel.channel_ready()
        except (TimeoutError, grpc.aio.UsageError):  # the latter where it was closed
            raise Unavailable(f"{self._model}: no connection within {within_s:g} s") from None

    async def count_tokens(
        self,
        messages: Iterable[chat_pb2.Message],
        timeout_s: float,
        metadata: Metadata,
        tools: Iterable[chat_pb2.Tool] = (),
    ) -> int:
        """How long a conversation is as the model reads it, with the tools it may call."""
        count: Any = self._channel.unary_unary(
            f"{_SERVICE}/CountTokens", request_serializer=llm_pb2.CountTokensRequest.SerializeToString
        )
        request = llm_pb2.CountTokensRequest(messages=messages, tools=tools)
        try:
            reply = await answer(count(request, timeout=timeout_s, metadata=metadata))
            return int(_parsed(llm_pb2.CountTokensResponse, reply).tokens)
        except grpc.aio.AioRpcError as error:
            raise translate(error, self._model) from None
        except DecodeError:
            raise Unavailable(f"{self._model}: sent a malformed message") from None

    async def context_tokens(self, timeout_s: float) -> int:
        """How many tokens its model's context holds; 0 where it does not say."""
        get: Any = self._channel.unary_unary(
            f"{_SERVICE}/GetModel", request_serializer=llm_pb2.GetModelRequest.SerializeToString
        )
        try:
            reply = await get(llm_pb2.GetModelRequest(), timeout=timeout_s)
            return int(_parsed(llm_pb2.GetModelResponse, reply).context_tokens)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return 0  # it has no such method, and will not have one soon
            raise translate(error, self._model) from None
        except DecodeError:
            return 0

    def generate(self, request: llm_pb2.GenerateRequest, timeout_s: float, metadata: Metadata) -> Completion:
        """Start an answer that ends after `timeout_s` at the latest."""
        return Completion(self._generate(request, timeout=timeout_s, metadata=metadata), self._model)
