"""Calls to the services behind the gateway: they start at once, and raise errors of our own tree.

Each service has a module: `cache.py`, `router.py`, `media.py` for vision and audio, and `llm.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import grpc
from google.protobuf.message import Message

from hedgerow.channel import answer, cancel, done_sending, send
from services.gateway.policies.tenant_aware_breaker import TenantAwareBreaker
from services.gateway.upstream.call_errors import translate
from services.runtime.errors import ServiceError
from services.runtime.rpc.authorization import TENANT_HEADER

_log = logging.getLogger(__name__)
_CALLABLE = (grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.IDLE)  # a ring connects when it is called
_AGAIN_S = 0.2  # to the next time, where a backend that is followed goes away


class Pending:
    """A unary call under way."""

    def __init__(self, call: grpc.aio.UnaryUnaryCall[Any, Any], backend: str):
        self._call, self._backend = call, backend

    async def reply(self) -> Any:
        try:
            return await answer(self._call)
        except grpc.aio.AioRpcError as error:
            raise translate(error, self._backend) from None

    def cancel(self) -> None:
        """Has no effect once it has ended."""
        cancel(self._call)


@lru_cache(maxsize=10_000)
def whose(tenant: str) -> tuple[str, str]:
    """Metadata that says whose a call is. By it a ring of cache replicas sends a tenant's calls to the same one (the
    cache itself goes by the question alone), the audio service shares its streams and recordings, the vision service
    the decoding of pictures, and an llm service the work that constraints make."""
    return TENANT_HEADER, quote(tenant)


def unary(channel: grpc.aio.Channel, module: Any, service: str, method: str) -> Any:
    return channel.unary_unary(*_method(module, service, method))


def server_stream(channel: grpc.aio.Channel, module: Any, service: str, method: str) -> Any:
    return channel.unary_stream(*_method(module, service, method))


def both_streams(channel: grpc.aio.Channel, module: Any, service: str, method: str) -> Any:
    return channel.stream_stream(*_method(module, service, method))


def _method(module: Any, service: str, method: str) -> Iterable[Any]:
    """A method's path, serializer and deserializer, from its descriptor's module."""
    request, reply = getattr(module, f"{method}Request"), getattr(module, f"{method}Response")
    path = f"/{module.DESCRIPTOR.package}.{service}/{method}"
    return path, request.SerializeToString, reply.FromString


async def _follow(call: Any, backend: str) -> AsyncGenerator[Any, None]:
    try:
        async for message in call:
            yield message
    except grpc.aio.AioRpcError as error:
        raise translate(error, backend) from None
    finally:
        call.cancel()


async def follow_reachable(
    channel: grpc.aio.Channel, begin: Callable[[], Any], backend: str
) -> AsyncGenerator[Any, None]:
    """`_follow` a call that begins once the backend is reachable."""
    await reachable(channel)
    async with aclosing(_follow(begin(), backend)) as messages:
        async for message in messages:
            yield message


async def reachable(channel: grpc.aio.Channel) -> None:
    """Wait until a call has somewhere to go.

    In place of gRPC's `wait_for_ready`: over xDS such a call stays where it is for good if it began before the control
    plane could be asked, while the channel itself recovers (docs/adr/0007).
    """
    while (state := channel.get_state(try_to_connect=True)) not in _CALLABLE:
        await channel.wait_for_state_change(state)


async def both_ways(call: Any, requests: AsyncGenerator[Message, None], backend: str) -> AsyncGenerator[Any, None]:
    """`_follow`, while `requests` are sent."""

    async def send_all() -> None:
        async with aclosing(requests):
            async for request in requests:
                if not await send(call, request):
                    return
        await done_sending(call)

    sending = asyncio.create_task(send_all())
    try:
        async with aclosing(_follow(call, backend)) as replies:
            async for reply in replies:
                yield reply
    finally:
        sending.cancel()
        await asyncio.wait({sending})


async def watch(channel: grpc.aio.Channel, breaker: TenantAwareBreaker | None = None) -> None:
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


async def keep_up(step: Callable[[], Awaitable[None]]) -> None:
    """Run `step`, which follows a backend, again whenever the backend goes away. Never returns."""
    while True:
        try:
            await step()
        except ServiceError as error:
            _log.info("%s; following again", error.message)
        await asyncio.sleep(_AGAIN_S)
