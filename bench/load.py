"""An open-loop load generator: arrivals do not wait for earlier answers.

Users do not wait with their question until another user has been answered. A generator that does (a closed loop)
sends less exactly when the system is slow, and so leaves out the latencies that matter most (coordinated omission:
G. Tene, "How NOT to Measure Latency", 2013). Here each arrival has its time beforehand, and its latency counts from
that time, also when it was sent late.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import grpc

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2
from hedgerow.llm.v1 import llm_pb2
from services.runtime.deadline import Clock

GATEWAY_GENERATE = "/hedgerow.gateway.v1.GatewayService/Generate"
LLM_GENERATE = "/hedgerow.llm.v1.LLMService/Generate"
MOST_IN_FLIGHT = 5_000  # calls the generator has open at once, so that a mesh that hangs cannot take its memory


class Outcome(StrEnum):
    """How a call ended for its caller."""

    OK = "ok"
    DEGRADED = "degraded"  # text, but less than there could be
    TIMEOUT = "timeout"  # without the whole text when the time was over
    REFUSED = "refused"  # RESOURCE_EXHAUSTED
    FAILED = "failed"

    @property
    def good(self) -> bool:
        """Whether the caller has an answer."""
        return self in (Outcome.OK, Outcome.DEGRADED)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request and when it comes, in seconds after the start."""

    at_s: float
    request: bytes
    label: str = ""
    metadata: tuple[tuple[str, str], ...] = ()


class Reply(NamedTuple):
    """The result of a request. `first_at`: the time of its first text on the generator's clock."""

    outcome: Outcome
    first_at: float | None = None
    hit: bool = False  # answered by the cache
    shared: bool = False  # answered by an equal request's generation


@dataclass(frozen=True, slots=True)
class Sample:
    """A call as its caller saw it. Times count from the scheduled arrival, in seconds."""

    label: str
    at_s: float  # when it was due, after the start
    lag_s: float  # how late it was sent
    total_s: float
    outcome: Outcome
    hit: bool = False
    shared: bool = False

    @property
    def good(self) -> bool:
        """Whether the caller has an answer."""
        return self.outcome.good

    @property
    def waited_s(self) -> float:
        """The time to the whole answer; infinite where there is none, however soon the error came. A call that was cut
        when its time was over counts with that time."""
        return self.total_s if self.good or self.outcome is Outcome.TIMEOUT else float("inf")


Ask = Callable[[Arrival], Awaitable[Reply]]


def poisson(rate: float, seconds: float, rng: random.Random) -> list[float]:
    """Arrival times of independent users: `rate` a second, for so long."""
    gaps = (rng.expovariate(rate) for _ in itertools.count())
    return list(itertools.takewhile(lambda at: at < seconds, itertools.accumulate(gaps)))


class OpenLoop:
    """Sends each arrival at its time, whatever came of those before."""

    def __init__(
        self,
        ask: Ask,
        *,
        clock: Clock = time.perf_counter,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        most_in_flight: int = MOST_IN_FLIGHT,
    ):
        self._ask, self._clock, self._sleep, self._most_in_flight = ask, clock, sleep, most_in_flight
        self._in_flight = 0

    async def run(self, arrivals: Sequence[Arrival]) -> list[Sample]:
        """All samples, in the order of arrival. An arrival with too many before it still open is not sent: a failure
        of infinite duration, because its waiting time is unknown."""
        start = self._clock()
        async with asyncio.TaskGroup() as group:
            calls = [await self._send(group, start, arrival) for arrival in arrivals]
        return [call.result() for call in calls]

    async def _send(self, group: asyncio.TaskGroup, start: float, arrival: Arrival) -> asyncio.Task[Sample]:
        wait_s = start + arrival.at_s - self._clock()
        if wait_s > 0:
            await self._sleep(wait_s)
        full = self._in_flight >= self._most_in_flight
        self._in_flight += 1
        return group.create_task(self._call(start, arrival, full))

    async def _call(self, start: float, arrival: Arrival, full: bool) -> Sample:
        sent = self._clock()
        try:
            reply = Reply(Outcome.FAILED) if full else await self._ask(arrival)
        finally:
            self._in_flight -= 1
        due, end = start + arrival.at_s, float("inf") if full else self._clock()
        return Sample(
            label=arrival.label,
            at_s=arrival.at_s,
            lag_s=sent - due,
            total_s=end - due,
            outcome=reply.outcome,
            hit=reply.hit,
            shared=reply.shared,
        )


async def closed_loop(ask: Ask, requests: Iterator[Arrival], callers: int, seconds: float) -> list[Sample]:
    """As many callers as said, each asking as soon as its last answer is there: for capacity, not for latency."""
    start, samples = time.perf_counter(), list[Sample]()

    async def caller() -> None:
        while (sent := time.perf_counter()) < start + seconds:
            arrival = next(requests)
            reply = await ask(arrival)
            samples.append(Sample(arrival.label, sent - start, 0, time.perf_counter() - sent, reply.outcome))
            if not samples[-1].good:
                await asyncio.sleep(0.01)  # a refusal costs less than an answer: no flood of them

    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(caller())
    return samples


Seen = tuple[bool, Reply | None]  # whether a message has text, a thought or a call, and the reply it ends with


class GrpcAsk:
    """Calls a streaming method of raw bytes, on each channel in turn: a server takes only so many calls on one."""

    def __init__(
        self, channels: Sequence[grpc.aio.Channel], method: str, read: Callable[[bytes], Seen], timeout_s: float
    ):
        self._methods: Any = itertools.cycle([channel.unary_stream(method) for channel in channels])
        self._read, self._timeout_s = read, timeout_s

    async def __call__(self, arrival: Arrival) -> Reply:
        call = next(self._methods)(arrival.request, timeout=self._timeout_s, metadata=arrival.metadata)
        first_at: float | None = None
        last: Reply | None = None
        try:
            while (message := await call.read()) is not grpc.aio.EOF:
                text, last = self._read(message)
                if text and first_at is None:
                    first_at = time.perf_counter()
        except grpc.aio.AioRpcError as error:
            return Reply(_STATUS.get(error.code(), Outcome.FAILED), first_at)
        # A stream that ends well without its last message is no answer.
        return last._replace(first_at=first_at) if last else Reply(Outcome.FAILED, first_at)


_STATUS = {grpc.StatusCode.DEADLINE_EXCEEDED: Outcome.TIMEOUT, grpc.StatusCode.RESOURCE_EXHAUSTED: Outcome.REFUSED}
_CACHED = (gateway_pb2.CACHE_VERDICT_EXACT, gateway_pb2.CACHE_VERDICT_SEMANTIC)
_ENDED = {chat_pb2.FINISH_REASON_BUDGET: Outcome.TIMEOUT, chat_pb2.FINISH_REASON_INTERRUPTED: Outcome.FAILED}


def ask_gateway(channels: Sequence[grpc.aio.Channel], timeout_s: float) -> GrpcAsk:
    """Asks a gateway; requests are `hedgerow.gateway.v1.GenerateRequest`."""
    return GrpcAsk(channels, GATEWAY_GENERATE, read_gateway, timeout_s)


def ask_llm(channels: Sequence[grpc.aio.Channel], timeout_s: float) -> GrpcAsk:
    """Asks llm services themselves; requests are `hedgerow.llm.v1.GenerateRequest`."""
    return GrpcAsk(channels, LLM_GENERATE, read_llm, timeout_s)


def read_gateway(message: bytes) -> Seen:
    """Read a `hedgerow.gateway.v1.GenerateResponse`."""
    text, last = False, None
    for event in gateway_pb2.GenerateResponse.FromString(message).events:
        text = text or _has_text(event)
        if event.HasField("final"):
            last = _ended(event.final)
    return text, last


def _ended(final: gateway_pb2.Final) -> Reply:
    good = Outcome.DEGRADED if final.degraded else Outcome.OK
    outcome = _ENDED.get(final.finish_reason, good) if final.text else Outcome.TIMEOUT
    shared = any(each.policy == "single_flight" and each.action == "joined" for each in final.decisions)
    return Reply(outcome, hit=final.cache.verdict in _CACHED, shared=shared)


def read_llm(message: bytes) -> Seen:
    """Read a `hedgerow.llm.v1.GenerateResponse`."""
    response = llm_pb2.GenerateResponse.FromString(message)
    ended = response.HasField("finish")
    return _message_has_text(response), Reply(_ENDED.get(response.finish.reason, Outcome.OK)) if ended else None


# An answer begins at its first text, thought or call, as a gateway's own `ttft_ms` and metrics have it.
_BEGINNINGS = ("delta", "reasoning", "tool_call")


def _has_text(event: gateway_pb2.Event) -> bool:
    return event.WhichOneof("kind") in _BEGINNINGS


def _message_has_text(message: llm_pb2.GenerateResponse) -> bool:
    return bool(message.text or message.reasoning or message.tool_calls)
