"""An answer that a model is writing, over a call that is cancelled from several sides."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import grpc
import pytest

from hedgerow.llm.v1 import llm_pb2
from services.gateway.generation.stack import make_stack
from services.gateway.upstream.completion import Completion, Llm
from services.runtime.errors import Exhausted, ServiceError, Unavailable
from tests.clock import loop_clock, on_paused_loop
from tests.unit.gateway.generation.scene import GONE, Scene
from tests.unit.gateway.scripted import Step, finish, fleet, text
from tests.unit.gateway.upstream.test_translate import failed


class ScriptedCall:
    """As gRPC's: who reads from a cancelled call hears of it a turn of the loop later, by a `CancelledError`."""

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
                raise failed(code, told=step)
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


def reading(completion: Completion) -> asyncio.Task[llm_pb2.GenerateResponse]:
    return asyncio.create_task(completion.read())


def test_who_reads_is_told_why_the_call_was_cancelled():
    async def main() -> None:
        completion = Completion(ScriptedCall(None), "m")
        task = reading(completion)
        await asyncio.sleep(1)
        completion.cancel(GONE)
        with pytest.raises(Unavailable) as told:
            await task
        assert told.value is GONE

    on_paused_loop(main())


def test_a_reader_that_is_cancelled_in_the_turn_in_which_the_call_is_stays_cancelled():
    async def main() -> None:
        completion = Completion(ScriptedCall(None), "m")
        task = reading(completion)
        await asyncio.sleep(1)
        completion.cancel(GONE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    on_paused_loop(main())


def test_a_call_that_ends_with_its_connection_is_unavailable_and_cancels_nobody():
    async def main() -> None:
        call = ScriptedCall(None)
        task = reading(Completion(call, "m"))
        await asyncio.sleep(1)
        call.cancel()  # as a channel that is closed does
        with pytest.raises(Unavailable, match="m: the connection was closed"):
            await task

    on_paused_loop(main())


def test_an_answer_that_is_whole_stays_so_when_its_connection_is_closed_before_its_status():
    async def main() -> None:
        call = ScriptedCall(None)
        ended = asyncio.create_task(Completion(call, "m").ended())
        await asyncio.sleep(1)
        call.cancel()
        await ended

    on_paused_loop(main())


@pytest.mark.parametrize("leaves_s", [0.9, 1.0, 1.0 + 1e-9])
def test_the_last_reader_may_leave_in_the_moment_in_which_a_silence_is_noticed(leaves_s: float):
    """Nothing is generated for nobody."""

    async def main() -> None:
        silent = ScriptedLlm(text("a "), None)
        other = ScriptedLlm(*(step for _ in range(50) for step in (0.1, text("b "))), finish())
        policies = {"stall_ms": 1_000, "retry": {"max_share": 1}, "hedge": {"mode": "off"}}
        behind = fleet(loop_clock, policies, m=[silent, other])
        reader = make_stack(behind, lambda _: None).read(b"", Scene(behind).job, 30.0).reader
        await reader.take()
        asyncio.get_running_loop().call_later(leaves_s, reader.leave)
        await asyncio.sleep(10)
        assert sum(call.messages for call in other.calls) == 0
        assert behind.pools["m"].limiter.in_flight == 0

    on_paused_loop(main())


class Channel:
    """Its model's service answers every unary call with the same."""

    def __init__(self, answer: bytes | Exception):
        self._answer = answer

    def unary_stream(self, method: str, **_: object) -> object:
        return None

    def unary_unary(self, method: str, **_: object) -> object:
        async def call(request: object, timeout: float, metadata: object = ()) -> bytes:
            if isinstance(self._answer, Exception):
                raise self._answer
            return self._answer

        return call


async def test_a_count_of_tokens_that_is_no_message_is_a_broken_model_and_no_fault_of_the_gateway() -> None:
    with pytest.raises(Unavailable, match="small: sent what is not a message"):
        await Llm(Channel(b"no message"), "small").count_tokens([], 1.0, ())  # type: ignore[arg-type]


@pytest.mark.parametrize("answer", [failed(grpc.StatusCode.UNIMPLEMENTED), b"no message"], ids=["old", "broken"])
async def test_a_service_that_cannot_say_how_long_its_context_is_is_one_that_does_not_say(
    answer: bytes | Exception,
) -> None:
    """Nothing else: the gateway asks a service that is away again every two seconds, for ever."""
    assert await Llm(Channel(answer), "small").context_tokens(1.0) == 0  # type: ignore[arg-type]
