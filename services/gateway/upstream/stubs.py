"""The services behind the gateway, as the rest of it sees them: calls that start at once, and errors of our own tree.

With `completion.py`, the modules of the gateway that know gRPC's calls.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from functools import lru_cache, partial
from typing import Any
from urllib.parse import quote

import grpc
from google.protobuf.message import Message

from hedgerow.audio.v1 import audio_pb2
from hedgerow.cache.v1 import cache_pb2
from hedgerow.channel import answer, cancel, done_sending, send
from hedgerow.router.v1 import router_pb2
from hedgerow.vision.v1 import vision_pb2
from services.gateway.policies.shared_breaker import SharedBreaker
from services.gateway.upstream.translate import Refused, translate
from services.runtime.errors import ServiceError, Unavailable
from services.runtime.rpc.authorization import TENANT_HEADER
from services.runtime.telemetry import Metadata

_log = logging.getLogger(__name__)
_CALLABLE = (grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.IDLE)  # a ring connects when it is called
_PIECE_BYTES = 256 * 1024  # of a recording, in one message


class Pending:
    """A unary call under way."""

    def __init__(self, call: grpc.aio.UnaryUnaryCall[Any, Any], who: str):
        self._call, self._who = call, who

    async def reply(self) -> Any:
        try:
            return await answer(self._call)
        except grpc.aio.AioRpcError as error:
            raise translate(error, self._who) from None

    def cancel(self) -> None:
        """Has no effect once it has ended."""
        cancel(self._call)


class Cache:
    """The cache service."""

    def __init__(self, channel: grpc.aio.Channel):
        self._channel = channel
        self._lookup = _unary(channel, cache_pb2, "CacheService", "Lookup")
        self._store = _unary(channel, cache_pb2, "CacheService", "Store")
        self._watch = _server_stream(channel, cache_pb2, "CacheService", "WatchInvalidations")
        self._embed = _unary(channel, cache_pb2, "CacheService", "Embed")
        self._stats = _unary(channel, cache_pb2, "CacheService", "GetStats")
        self._invalidate = _unary(channel, cache_pb2, "CacheService", "Invalidate")
        self._report = _unary(channel, cache_pb2, "CacheService", "ReportVerdict")

    async def embed(
        self, request: cache_pb2.EmbedRequest, timeout_s: float, metadata: Metadata
    ) -> cache_pb2.EmbedResponse:
        pending = Pending(self._embed(request, timeout=timeout_s, metadata=metadata), "cache")
        return await pending.reply()  # type: ignore[no-any-return]

    async def stats(self, tenant: str, timeout_s: float, metadata: Metadata) -> cache_pb2.GetStatsResponse:
        """Counts of the replica that these metadata lead to, and a tenant's threshold."""
        request = cache_pb2.GetStatsRequest(tenant=tenant)
        pending = Pending(self._stats(request, timeout=timeout_s, metadata=metadata), "cache")
        return await pending.reply()  # type: ignore[no-any-return]

    async def invalidate(self, request: cache_pb2.InvalidateRequest, timeout_s: float, metadata: Metadata) -> int:
        """How many entries were removed."""
        pending = Pending(self._invalidate(request, timeout=timeout_s, metadata=metadata), "cache")
        return int((await pending.reply()).removed)

    async def report(self, request: cache_pb2.ReportVerdictRequest, timeout_s: float, metadata: Metadata) -> bool:
        """Whether an entry was tightened. `metadata` says whose it is."""
        pending = Pending(self._report(request, timeout=timeout_s, metadata=metadata), "cache")
        return bool((await pending.reply()).tightened)

    def lookup(self, request: cache_pb2.LookupRequest, timeout_s: float, metadata: Metadata) -> Pending:
        """Start a lookup that ends after `timeout_s` at the latest."""
        metadata = (*metadata, whose(request.question.tenant))
        return Pending(self._lookup(request, timeout=timeout_s, metadata=metadata), "cache")

    async def store(self, request: cache_pb2.StoreRequest, timeout_s: float) -> cache_pb2.StoreResponse:
        metadata = (whose(request.question.tenant),)
        pending = Pending(self._store(request, timeout=timeout_s, metadata=metadata), "cache")
        return await pending.reply()  # type: ignore[no-any-return]

    def invalidations(self) -> AsyncGenerator[cache_pb2.WatchInvalidationsResponse, None]:
        """Removals as they happen; waits for the cache to be there, ends with `ServiceError` when it goes."""
        return _follow_reachable(self._channel, partial(self._watch, cache_pb2.WatchInvalidationsRequest()), "cache")


@lru_cache(maxsize=10_000)
def whose(tenant: str) -> tuple[str, str]:
    """Metadata that says whose a call is. By it a ring of cache replicas sends a tenant's calls to the same one (the
    cache itself goes by the question alone), the audio service shares its streams, and an llm service the work that
    constraints make."""
    return TENANT_HEADER, quote(tenant)


class Router:
    """The router."""

    def __init__(self, channel: grpc.aio.Channel):
        self._channel = channel
        self._watch = _server_stream(channel, router_pb2, "RouterService", "WatchTable")
        self._observe = channel.stream_unary(
            "/hedgerow.router.v1.RouterService/Observe",
            request_serializer=router_pb2.ObserveRequest.SerializeToString,
            response_deserializer=router_pb2.ObserveResponse.FromString,
        )

    def tables(self) -> AsyncGenerator[router_pb2.WatchTableResponse, None]:
        """The table, at once and at each change; waits for the router, ends with `ServiceError` when it goes."""
        return _follow_reachable(self._channel, partial(self._watch, router_pb2.WatchTableRequest()), "router")

    async def observe(self, requests: AsyncIterator[router_pb2.ObserveRequest]) -> None:
        """Send observations for as long as the router is there, waiting for it first; raises `ServiceError` when it
        goes."""
        await reachable(self._channel)
        try:
            await self._observe(requests)
        except grpc.aio.AioRpcError as error:
            raise translate(error, "router") from None


class VisionCalls:
    """The vision service."""

    def __init__(self, channel: grpc.aio.Channel):
        self._classify = _unary(channel, vision_pb2, "VisionService", "Classify")

    def classify(self, request: vision_pb2.ClassifyRequest, timeout_s: float, metadata: Metadata) -> Pending:
        """Start to look; ends after `timeout_s` at the latest."""
        return Pending(self._classify(request, timeout=timeout_s, metadata=metadata), "vision")


class AudioCalls:
    """The audio service."""

    def __init__(self, channel: grpc.aio.Channel):
        self._transcribe = _both_streams(channel, audio_pb2, "AudioService", "Transcribe")
        self._transcribe_stream = _both_streams(channel, audio_pb2, "AudioService", "TranscribeStream")

    async def transcribe(self, recording: bytes, timeout_s: float, metadata: Metadata) -> audio_pb2.TranscribeSummary:
        """Transcribe a recording, within `timeout_s`."""
        try:
            options = audio_pb2.TranscribeOptions()
            async with aclosing(self.recording(recording, options, timeout_s, metadata)) as replies:
                async for reply in replies:
                    if reply.HasField("summary"):
                        return reply.summary
        except Refused as refusal:  # it names the field of its own request; the caller's is in `audio`
            raise Refused(f"audio.{refusal.message}") from None
        raise Unavailable("audio: ended without saying why")

    def recording(
        self, recording: bytes, options: audio_pb2.TranscribeOptions, timeout_s: float, metadata: Metadata
    ) -> AsyncGenerator[audio_pb2.TranscribeResponse, None]:
        """Transcribe a recording segment by segment, within `timeout_s`."""
        call = self._transcribe(timeout=timeout_s, metadata=metadata)
        return both_ways(call, _pieces(recording, options), "audio")

    def listen(
        self,
        requests: AsyncGenerator[audio_pb2.TranscribeStreamRequest, None],
        timeout_s: float | None,
        metadata: Metadata,
    ) -> AsyncGenerator[audio_pb2.TranscribeStreamResponse, None]:
        """Transcribe live audio; the first request has the options. Closing it ends the call."""
        return both_ways(self._transcribe_stream(timeout=timeout_s, metadata=metadata), requests, "audio")


async def _pieces(
    recording: bytes, options: audio_pb2.TranscribeOptions
) -> AsyncGenerator[audio_pb2.TranscribeRequest, None]:
    yield audio_pb2.TranscribeRequest(options=options)
    for start in range(0, len(recording), _PIECE_BYTES):
        yield audio_pb2.TranscribeRequest(data=recording[start : start + _PIECE_BYTES])


def _unary(channel: grpc.aio.Channel, module: Any, service: str, method: str) -> Any:
    return channel.unary_unary(*_method(module, service, method))


def _server_stream(channel: grpc.aio.Channel, module: Any, service: str, method: str) -> Any:
    return channel.unary_stream(*_method(module, service, method))


def _both_streams(channel: grpc.aio.Channel, module: Any, service: str, method: str) -> Any:
    return channel.stream_stream(*_method(module, service, method))


def _method(module: Any, service: str, method: str) -> Iterable[Any]:
    """A method's path, serializer and deserializer, from its descriptor's module."""
    request, reply = getattr(module, f"{method}Request"), getattr(module, f"{method}Response")
    path = f"/{module.DESCRIPTOR.package}.{service}/{method}"
    return path, request.SerializeToString, reply.FromString


async def _follow(call: Any, who: str) -> AsyncGenerator[Any, None]:
    try:
        async for message in call:
            yield message
    except grpc.aio.AioRpcError as error:
        raise translate(error, who) from None
    finally:
        call.cancel()


async def _follow_reachable(channel: grpc.aio.Channel, begin: Callable[[], Any], who: str) -> AsyncGenerator[Any, None]:
    """`_follow` a call that begins once the backend is reachable."""
    await reachable(channel)
    async with aclosing(_follow(begin(), who)) as messages:
        async for message in messages:
            yield message


async def reachable(channel: grpc.aio.Channel) -> None:
    """Wait until a call has somewhere to go.

    In place of gRPC's `wait_for_ready`: over xDS such a call stays where it is for good if it began before the control
    plane could be asked, while the channel itself recovers (docs/adr/0009).
    """
    while (state := channel.get_state(try_to_connect=True)) not in _CALLABLE:
        await channel.wait_for_state_change(state)


async def both_ways(call: Any, requests: AsyncGenerator[Message, None], who: str) -> AsyncGenerator[Any, None]:
    """`_follow`, while `requests` are sent."""

    async def send_all() -> None:
        async with aclosing(requests):
            async for request in requests:
                if not await send(call, request):
                    return
        await done_sending(call)

    sending = asyncio.create_task(send_all())
    try:
        async with aclosing(_follow(call, who)) as replies:
            async for reply in replies:
                yield reply
    finally:
        sending.cancel()
        await asyncio.wait({sending})


async def watch(channel: grpc.aio.Channel, breaker: SharedBreaker | None = None) -> None:
    """Keep connected, from before the first call on, and notify the backend's breaker, where it has one, when its
    connection is lost and when it is back. Never returns."""
    while True:
        state = channel.get_state(try_to_connect=True)
        if breaker is None:
            pass
        elif state is grpc.ChannelConnectivity.READY:
            breaker.connected()
        elif state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
            breaker.disconnected()
        await channel.wait_for_state_change(state)


async def keep_up(step: Callable[[], Awaitable[None]], pause_s: float = 0.2) -> None:
    """Run `step`, which follows a backend, again whenever the backend goes away. Never returns."""
    while True:
        try:
            await step()
        except ServiceError as error:
            _log.info("%s; following again", error.message)
        await asyncio.sleep(pause_s)
