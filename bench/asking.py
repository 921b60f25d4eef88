"""Questions for a gateway, and how long they take, way by way in turns."""

from __future__ import annotations

import itertools
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import aiohttp
import grpc

from bench.load import Arrival, Ask, GrpcAsk, ask_gateway
from bench.stats import percentiles
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2
from hedgerow.llm.v1 import llm_pb2

BUDGET_MS = 20_000
_TIMEOUT_S = 120.0
_WORD = b"word"  # simulated models and providers say nothing else
Result = TypeVar("Result")
Timing = tuple[float, float]  # seconds to the first text and to the end


def user(text: str) -> list[chat_pb2.Message]:
    """A conversation of one message."""
    return [chat_pb2.Message(role=chat_pb2.ROLE_USER, content=text)]


def question(text: str, tokens: int = 0, *, bypass: bool = False, **fields: Any) -> bytes:
    """A `hedgerow.gateway.v1.GenerateRequest`. Where the cache is asked, only the same text is a hit."""
    given = {"budget_ms": BUDGET_MS, **fields}
    if tokens:
        given["sampling"] = chat_pb2.Sampling(max_tokens=tokens)
    cache = gateway_pb2.CachePolicy(bypass=bypass, min_similarity=1)
    return gateway_pb2.GenerateRequest(messages=user(text), cache=cache, **given).SerializeToString()


def llm_question(text: str, tokens: int | None = None) -> bytes:
    """A `hedgerow.llm.v1.GenerateRequest`."""
    sampling = chat_pb2.Sampling(max_tokens=tokens)
    return llm_pb2.GenerateRequest(messages=user(text), sampling=sampling).SerializeToString()


def gateway(channel: grpc.aio.Channel) -> GrpcAsk:
    """Asks a gateway by one channel."""
    return ask_gateway([channel], _TIMEOUT_S)


async def timed(ask: Ask, request: bytes, metadata: tuple[tuple[str, str], ...] = ()) -> Timing:
    """One call. Raises RuntimeError where it did not end with a whole answer."""
    began = time.perf_counter()
    reply = await ask(Arrival(0, request, metadata=metadata))
    ended = time.perf_counter()
    if not reply.outcome.good or reply.first_at is None:
        raise RuntimeError(f"a call ended as {reply}")
    return reply.first_at - began, ended - began


async def posted(
    session: aiohttp.ClientSession, url: str, body: bytes, headers: Mapping[str, str] | None = None
) -> Timing:
    """One streamed call by HTTP of what answers with the simulated provider's words. Raises RuntimeError where it does
    not."""
    began, first, read = time.perf_counter(), 0.0, b""
    all_headers = {"content-type": "application/json", **(headers or {})}
    async with session.post(url, data=body, headers=all_headers) as response:
        async for data in response.content.iter_any():
            read += data
            if not first and _WORD in read:
                first = time.perf_counter() - began
    if response.status != 200 or not first:
        raise RuntimeError(f"HTTP {response.status}: {read[-300:]!r}")
    return first, time.perf_counter() - began


async def in_turns(
    ways: Mapping[str, Callable[[int], Awaitable[Result]]], samples: int, warm_up: int = 0
) -> dict[str, list[Result]]:
    """Measure every way `samples` times, one after the other in all orders. Each is called with the number of its turn;
    turns below 0 are the warm-up, which is not kept."""
    found: dict[str, list[Result]] = {name: [] for name in ways}
    orders = itertools.cycle(itertools.permutations(ways))
    for number in range(-warm_up, samples):
        for name in next(orders):
            measured = await ways[name](number)
            if number >= 0:
                found[name].append(measured)
    return found


def milliseconds(timings: Sequence[Timing]) -> dict[str, dict[str, float]]:
    """Percentiles of both times."""
    firsts, totals = zip(*timings, strict=True)
    return {
        "ttft_ms": percentiles([seconds * 1000 for seconds in firsts]),
        "total_ms": percentiles([seconds * 1000 for seconds in totals]),
    }


def added(path: Mapping[str, float], direct: Mapping[str, float]) -> dict[str, float]:
    """The differences of the percentiles. They are not percentiles of the time added to a call."""
    return {key: round(path[key] - direct[key], 3) for key in direct}
