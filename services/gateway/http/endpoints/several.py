"""Several answers to one question, where no provider gives them to one request: each is asked separately.

All are admitted together, and each is charged (`api/choices.py`). None comes from the cache, is stored there, or is
shared with an equal request, because equal texts would come of that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.identity import Tenant
from services.gateway.http.dialects.chat_answer import usage
from services.gateway.http.dialects.writer import ChoiceWriter
from services.gateway.http.fields import Fields
from services.gateway.http.report import report, size_of_answer
from services.gateway.http.request_options import RequestOptions
from services.runtime.aside import give_way
from services.runtime.deadline import Clock
from services.runtime.errors import InvalidInput
from services.runtime.strict_json import compact

_MOST = 16  # requests of the gateway for one by HTTP
_FIELD = "n"
_LARGEST = 2**63 - 1
_SUMS = ("prompt_tokens", "completion_tokens", "cached_prompt_tokens", "drafted_tokens", "accepted_tokens",
         "reasoning_tokens", "cache_write_tokens")  # fmt: skip
_KNOWN_S = 60.0
_AT_ONCE = 16 * 1024  # bytes of events that are written before the event loop turns to other work: about 1 ms
Take = Callable[[pb.GenerateResponse], Awaitable[None]]
T = TypeVar("T")


class AskedAlone:
    """Models that have refused to give several answers to one request, by the names that requests have for them. They
    are not asked to for a minute, because a refusal counts as one request more."""

    def __init__(self, clock: Clock = time.monotonic):
        self._clock, self._until = clock, dict[str, float]()

    def __contains__(self, model: str) -> bool:
        return self._clock() < self._until.get(model, 0.0)

    def note(self, model: str) -> None:
        self._until[model] = self._clock() + _KNOWN_S


def check_choices(count: int, tenant: Tenant) -> None:
    """Raise `InvalidInput` for more than can ever be admitted together."""
    allowance = tenant.allowance
    limits = {
        _MOST: "where each answer is asked separately",
        **({int(allowance.requests_burst): "the tenant's `requests_burst`"} if allowance.requests_per_s else {}),
        **({allowance.concurrency: "the tenant's `concurrency`"} if allowance.concurrency else {}),
    }
    if count > (most := min(limits)):
        raise InvalidInput(_FIELD, f"at most {most}, {limits[most]}", count)


def check_bytes(order: RequestOptions, most: int) -> None:
    """Raise `InvalidInput` where a request for each answer takes more than `most` bytes, as much as a body may have."""
    if (size := order.request.ByteSize()) * order.choices > most:
        limit = f"at most {max(1, most // size)} for a request of {size} bytes, where each answer is asked separately"
        raise InvalidInput(_FIELD, limit, order.choices)


def separate(order: RequestOptions, body: Fields) -> list[pb.GenerateRequest]:
    """A request for each answer, equal but for the seeds, which count up as vLLM's do."""
    given = {name: body.seen(name) for name in body if name != _FIELD}
    return [_one(order.request, given, index) for index in range(order.choices)]


def _one(asked: pb.GenerateRequest, given: dict[str, Any], index: int) -> pb.GenerateRequest:
    request = pb.GenerateRequest()
    request.CopyFrom(asked)
    request.cache.bypass = True
    request.ClearField("idempotency_key")  # which is that of all of them
    if request.sampling.HasField("seed"):
        seed = request.sampling.seed
        given["seed"] = request.sampling.seed = seed + index if seed <= _LARGEST - index else seed - index
    if request.HasField("original"):
        request.original.untranslated.pop(_FIELD, None)
        request.original.body = compact(given)
    return request


@dataclass(slots=True)
class Several:
    """The answers on their way to the client. `send` sends more of a stream, and whether that is the last; it is called
    by one at a time."""

    order: RequestOptions
    writers: Sequence[ChoiceWriter]
    send: Callable[[bytes, bool], Awaitable[None]]
    check: Callable[[pb.Final], None]  # raises for an answer that should not be taken for one
    came: Callable[[pb.GenerateResponse], None]  # is called for every message
    tenant: str
    finals: dict[int, pb.Final] = field(default_factory=dict)  # of all that have ended
    _sending: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def together(self) -> pb.Final:
        """The end of all that have ended."""
        return together([self.finals[index] for index in sorted(self.finals)])

    @property
    def size(self) -> int:
        """The size of all answers, for `aside`."""
        return sum(map(size_of_answer, self.finals.values()))

    def whole(self) -> dict[str, Any]:
        """The answers in one piece."""
        each = [writer.whole(self.finals[index]) for index, writer in enumerate(self.writers)]
        choices, all_of_them = [choice for one in each for choice in one["choices"]], self.together
        return {**each[0], "choices": choices, "usage": usage(all_of_them.usage), "hedgerow": self._report(all_of_them)}

    async def take(self, index: int, message: pb.GenerateResponse) -> None:
        """More of the answer with that index."""
        writer, last = self.writers[index], message.events[-1]
        if last.HasField("final"):
            self.check(last.final)
        self.came(message)
        async with self._sending:
            if last.HasField("final"):
                self.finals[index] = last.final
            if not self.order.stream:
                await for_each(message, writer.gather, self.tenant)
                return
            data = b"".join(await for_each(message, writer.chunk, self.tenant))
            over = len(self.finals) == len(self.writers)
            if last.HasField("final"):
                data += self._end(index, last.final, over=over)
            if data:
                await self.send(data, over)

    def _end(self, index: int, final: pb.Final, *, over: bool) -> bytes:
        if not over:
            return self.writers[index].end_choice(final, None)
        all_of_them = self.together
        mesh_report = self._report(all_of_them)
        ended = self.writers[index].end_choice(final, None if self.order.usage else mesh_report)
        return ended + self.writers[index].end_all(all_of_them.usage, mesh_report)

    def _report(self, all_of_them: pb.Final) -> dict[str, Any]:
        return {**report(all_of_them), "choices": [report(self.finals[each]) for each in sorted(self.finals)]}


async def for_each(message: pb.GenerateResponse, take: Callable[[pb.Event], T], tenant: str) -> list[T]:
    """What `take` returns for each event of a message: of many, a portion in each turn of the event loop."""
    taken, size = list[T](), 0
    for event in message.events:
        if size > _AT_ONCE:
            size = 0
            await give_way(tenant)
        taken.append(take(event))
        size += event.ByteSize()
    return taken


def together(finals: Sequence[pb.Final]) -> pb.Final:
    """The first one, with the tokens and the cost of all, the longest time, and what any of them was degraded by."""
    whole = pb.Final()
    whole.CopyFrom(finals[0])
    for name in _SUMS:
        setattr(whole.usage, name, sum(getattr(each.usage, name) for each in finals))
    whole.cost_usd = sum(each.cost_usd for each in finals)
    whole.total_ms = max(each.total_ms for each in finals)
    if first := [each.ttft_ms for each in finals if each.HasField("ttft_ms")]:
        whole.ttft_ms = min(first)
    degraded = dict.fromkeys(reason for each in finals for reason in each.degraded)
    whole.degraded[:] = list(degraded)
    return whole
