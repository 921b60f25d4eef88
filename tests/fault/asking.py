"""Questions to a gateway over the bare contract, and how each one ended.

Not over the SDK: a fault test must see the status as it came, the decisions, and the moment of each event.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from hedgerow.channel import open_channel
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.gateway.v1 import gateway_pb2_grpc

MODEL = "simulated"
_HANGS_AFTER_S = 10.0  # past the budget; a gateway that needs this long has lost the call
_LACKING = (pb.STAGE_OUTCOME_OVERRUN, pb.STAGE_OUTCOME_FAILED)
_WHOLE = (chat_pb2.FINISH_REASON_STOP, chat_pb2.FINISH_REASON_LENGTH)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a question ended: with `final`, or with a status other than OK. `text` is what the deltas brought."""

    code: grpc.StatusCode
    final: pb.Final | None
    text: str
    seconds: float
    ended: float  # time.monotonic()
    details: str = ""
    retry_delay_s: float | None = None

    @property
    def began(self) -> float:
        """time.monotonic()"""
        return self.ended - self.seconds

    @property
    def typed(self) -> bool:
        """Whether it says how it ended: a last event with a reason, or a status that the contract knows."""
        if self.code is grpc.StatusCode.OK:
            return self.final is not None and self.final.finish_reason != chat_pb2.FINISH_REASON_UNSPECIFIED
        return self.code not in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)

    @property
    def whole(self) -> bool:
        """Whether it is all of the answer."""
        return self.final is not None and self.final.finish_reason in _WHOLE

    @property
    def ok(self) -> bool:
        return self.whole and not self.degraded

    @property
    def degraded(self) -> bool:
        """Whether it says that it is less than it could be, or that a stage did not do its part."""
        if self.final is None:
            return False
        away = self.final.cache.verdict == pb.CACHE_VERDICT_UNAVAILABLE
        return away or bool(self.final.degraded) or any(stage.outcome in _LACKING for stage in self.final.stages)

    @property
    def failed(self) -> bool:
        return self.final is None

    @property
    def unavailable(self) -> bool:
        return self.code is grpc.StatusCode.UNAVAILABLE

    def stage(self, name: str) -> pb.Stage:
        assert self.final is not None, self
        return next(stage for stage in self.final.stages if stage.name == name)

    def cache_skipped(self) -> bool:
        """Whether the gateway knew that the cache is down, and did not wait for it."""
        return self.stage("cache").outcome in (pb.STAGE_OUTCOME_FAILED, pb.STAGE_OUTCOME_SKIPPED)

    def decided(self, policy: str) -> list[str]:
        """The actions of a policy, in order."""
        return [decision.action for decision in self.final.decisions if decision.policy == policy] if self.final else []


def question(text: str = "What is a fault?", **fields: Any) -> pb.GenerateRequest:
    """A request for the one model there is; `max_tokens` goes into its sampling, `bypass` into its cache policy.

    By name, because a router that saw the model fail would mark every answer of it.
    """
    fields.setdefault("model", MODEL)
    sampling = chat_pb2.Sampling(max_tokens=fields.pop("max_tokens")) if "max_tokens" in fields else None
    policy = pb.CachePolicy(bypass=True) if fields.pop("bypass", False) else fields.pop("cache", None)
    messages = [chat_pb2.Message(role=chat_pb2.ROLE_USER, content=text)]
    return pb.GenerateRequest(messages=messages, sampling=sampling, cache=policy, **fields)


class Asker:
    """A caller with one connection. `key` is its API key."""

    def __init__(self, channel: grpc.aio.Channel, key: str = ""):
        self.channel = channel
        self.stub: Any = gateway_pb2_grpc.GatewayServiceStub(channel)
        self.metadata = (("authorization", f"Bearer {key}"),) if key else ()

    def start(self, text: str = "What is a fault?", **fields: Any) -> Asked:
        """Send a question."""
        request = question(text, **fields)
        budget_ms = request.budget_ms or 30_000
        return Asked(self.stub.Generate(request, timeout=budget_ms / 1000 + _HANGS_AFTER_S, metadata=self.metadata))

    async def ask(self, text: str = "What is a fault?", **fields: Any) -> Outcome:
        """Send a question and wait for its end."""
        return await self.start(text, **fields).end()

    async def until(self, condition: Any, within_s: float, every_s: float = 0.02, **fields: Any) -> list[Outcome]:
        """Ask new questions, one after the other, until one's outcome fulfils `condition`."""
        outcomes: list[Outcome] = []
        async with asyncio.timeout(within_s):
            while not outcomes or not condition(outcomes[-1]):
                if outcomes:
                    await asyncio.sleep(every_s)
                outcomes.append(await self.ask(f"Question {time.monotonic_ns()}?", **fields))
        return outcomes


class Asked:
    """A question under way."""

    def __init__(self, call: Any):
        self._call, self._started = call, time.monotonic()
        self._text, self._final = "", None

    async def first_text(self) -> None:
        """Return when some of the answer is here."""
        while not self._text:
            assert await self._read(), "ended without text"

    async def end(self) -> Outcome:
        """Read on to the end."""
        try:
            while await self._read():
                pass
            code, details, delay = grpc.StatusCode.OK, "", None
        except grpc.aio.AioRpcError as error:
            code, details, delay = error.code(), error.details() or "", _retry_delay_s(error)
        now = time.monotonic()
        return Outcome(code, self._final, self._text, now - self._started, now, details, delay)

    def cancel(self) -> None:
        self._call.cancel()

    async def _read(self) -> bool:
        message = await self._call.read()
        if message is grpc.aio.EOF:
            return False
        for event in message.events:
            self._text += event.delta.text
            if event.HasField("final"):
                self._final = event.final
        return True


def _retry_delay_s(error: Any) -> float | None:
    status, info = rpc_status.from_call(error), error_details_pb2.RetryInfo()
    delays = [detail for detail in (status.details if status else ()) if detail.Unpack(info)]
    return info.retry_delay.ToNanoseconds() / 1e9 if delays else None


@asynccontextmanager
async def asking(address: str, key: str = "", prewarm: bool = True) -> AsyncIterator[Asker]:
    """A caller of the gateway at `address`."""
    async with open_channel(address) as channel:
        if prewarm:
            await asyncio.wait_for(channel.channel_ready(), 10)
        yield Asker(channel, key)


def times_s(outcomes: Sequence[Outcome]) -> list[float]:
    """The seconds of each outcome."""
    return [outcome.seconds for outcome in outcomes]


def p99_ms(times: Sequence[float]) -> float:
    """The p99 in milliseconds of times in seconds, by nearest rank."""
    return sorted(times)[min(len(times) - 1, int(len(times) * 0.99))] * 1000
