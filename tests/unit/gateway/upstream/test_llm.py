"""An answer that a model is writing, over a call that is cancelled from several sides."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from hedgerow.llm.v1 import llm_pb2
from services.gateway.generation.stack import make_stack
from services.gateway.upstream.llm import Completion, Llm
from services.runtime.errors import Unavailable
from tests.clock import loop_clock
from tests.unit.gateway.generation.scene import GONE, Scene
from tests.unit.gateway.scripted import finish, fleet, text
from tests.unit.gateway.upstream.scripted_call import ScriptedCall, ScriptedLlm, failed

pytestmark = pytest.mark.paused


def reading(completion: Completion) -> asyncio.Task[llm_pb2.GenerateResponse]:
    return asyncio.create_task(completion.read())


async def test_the_reader_gets_the_reason_of_a_cancelled_call():
    completion = Completion(ScriptedCall(None), "m")
    task = reading(completion)
    await asyncio.sleep(1)
    completion.cancel(GONE)
    with pytest.raises(Unavailable) as caught:
        await task
    assert caught.value is GONE


async def test_a_reader_that_is_cancelled_in_the_turn_in_which_the_call_is_stays_cancelled():
    completion = Completion(ScriptedCall(None), "m")
    task = reading(completion)
    await asyncio.sleep(1)
    completion.cancel(GONE)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_call_that_ends_with_its_connection_is_unavailable_and_cancels_no_task():
    call = ScriptedCall(None)
    task = reading(Completion(call, "m"))
    await asyncio.sleep(1)
    call.cancel()  # as a channel that is closed does
    with pytest.raises(Unavailable, match="m: the connection was closed"):
        await task


async def test_an_answer_that_is_whole_stays_so_when_its_connection_is_closed_before_its_status():
    call = ScriptedCall(None)
    ended = asyncio.create_task(Completion(call, "m").ended())
    await asyncio.sleep(1)
    call.cancel()
    await ended


@pytest.mark.parametrize("leaves_s", [0.9, 1.0, 1.0 + 1e-9])
async def test_the_last_reader_may_leave_in_the_moment_in_which_a_silence_is_noticed(leaves_s: float):
    """A call without a reader is cancelled."""
    silent = ScriptedLlm(text("a "), None)
    other = ScriptedLlm(*(step for _ in range(50) for step in (0.1, text("b "))), finish())
    policies = {"stall_ms": 1_000, "retry": {"max_share": 1}, "hedge": {"mode": "off"}}
    behind = fleet(loop_clock, policies, m=[silent, other])
    reader = make_stack(behind, lambda _: None).read(b"", Scene(behind).job, 30.0).reader
    await reader.take()
    asyncio.get_running_loop().call_later(leaves_s, reader.close)
    await asyncio.sleep(10)
    assert sum(call.messages for call in other.calls) == 0
    assert behind.pools["m"].limiter.in_flight == 0


class Channel:
    """A channel to a service that answers every unary call with the same reply."""

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
    with pytest.raises(Unavailable, match="small: sent a malformed message"):
        await Llm(Channel(b"no message"), "small").count_tokens([], 1.0, ())  # type: ignore[arg-type]


@pytest.mark.parametrize("answer", [failed(grpc.StatusCode.UNIMPLEMENTED), b"no message"], ids=["old", "broken"])
async def test_an_error_of_the_context_length_counts_as_unknown(answer: bytes | Exception) -> None:
    """The result is 0, and no error: the gateway asks a service that is down again every two seconds."""
    assert await Llm(Channel(answer), "small").context_tokens(1.0) == 0  # type: ignore[arg-type]
