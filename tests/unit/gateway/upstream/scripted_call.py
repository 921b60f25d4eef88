"""A model behind a call that is cancelled as gRPC's are."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import grpc

from hedgerow.llm.v1 import llm_pb2
from services.gateway.upstream.llm import Completion
from services.runtime.errors import Exhausted, ServiceError
from services.runtime.rpc import boundary
from tests.clock import loop_clock
from tests.unit.gateway.scripted import Step


class ScriptedCall:
    """As in gRPC, a read from a cancelled call raises `CancelledError` a turn of the loop later."""

    finish = None

    def __init__(self, *script: Step, timeout_s: float = 600.0):
        self.messages = 0
        self._script, self._cancelled, self._ended = iter(script), asyncio.Event(), False
        self._ends_at = loop_clock() + timeout_s

    @property
    def closed(self) -> bool:
        """Also by its own end."""
        return self._ended or self._cancelled.is_set()

    async def read(self) -> object:
        for step in self._script:
            if isinstance(step, llm_pb2.GenerateResponse):
                self.messages += 1
                self._ended = step.HasField("finish")
                await asyncio.sleep(0)
                return step.SerializeToString()
            if isinstance(step, ServiceError):
                self._ended = True
                code = (
                    grpc.StatusCode.RESOURCE_EXHAUSTED if isinstance(step, Exhausted) else grpc.StatusCode.UNAVAILABLE
                )
                raise failed(code, error=step)
            await self._pause(step)
        self._ended = True
        return grpc.aio.EOF

    async def _pause(self, seconds: float | None) -> None:
        """For ever where it is None; as a call does, it ends at its deadline or when it is cancelled."""
        left_s = self._ends_at - loop_clock()
        with suppress(TimeoutError):
            async with asyncio.timeout(left_s if seconds is None else min(seconds, left_s)):
                await self._cancelled.wait()
        if self._cancelled.is_set():
            await asyncio.sleep(0)
            raise asyncio.CancelledError
        if loop_clock() >= self._ends_at:
            self._ended = True
            raise failed(grpc.StatusCode.DEADLINE_EXCEEDED)

    def cancel(self) -> None:
        self._cancelled.set()


class ScriptedLlm:
    def __init__(self, *script: Step):
        self._script, self.calls = script, list[ScriptedCall]()

    def generate(self, request, timeout_s, metadata) -> Completion:
        self.calls.append(ScriptedCall(*self._script, timeout_s=timeout_s))
        return Completion(self.calls[-1], "m")


def failed(code: grpc.StatusCode, details: str = "said", error: ServiceError | None = None) -> grpc.aio.AioRpcError:
    trailers = boundary.trailers(boundary.to_status(error)) if error else ()
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailers), details)
