"""Runs the gateway: `python -m services.gateway`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import chain

import grpc
from google.protobuf.descriptor import ServiceDescriptor

from hedgerow.channel import open_channel
from hedgerow.gateway.v1 import gateway_pb2
from services.gateway.aftermath import Aftermath
from services.gateway.answer import Backends, StandIns
from services.gateway.backends import Audio, Cache, Llm, Router, Vision, keep_up, watch
from services.gateway.config import GatewaySettings
from services.gateway.door import Door
from services.gateway.fleet import make_breaker, make_fleet
from services.gateway.generation import Generation
from services.gateway.identity import BadTenants, Identity
from services.gateway.near import NearCache
from services.gateway.routes import Routes
from services.gateway.senses import Senses
from services.gateway.servicer import GatewayServicer
from services.runtime import serve
from services.runtime.policy.flight import SingleFlight
from services.runtime.policy.pressure import Pressure

_SERVICE = gateway_pb2.DESCRIPTOR.services_by_name["GatewayService"]
_SETTLE_S = 1.0
_log = logging.getLogger("services.gateway")


@asynccontextmanager
async def assemble(settings: GatewaySettings) -> AsyncIterator[Mapping[ServiceDescriptor, GatewayServicer]]:
    async with AsyncExitStack() as stack:

        async def connect(address: str) -> grpc.aio.Channel:
            return await stack.enter_async_context(open_channel(address))

        channels = {
            address: await connect(address)
            for address in {
                settings.cache_address,
                settings.router_address,
                settings.vision_address,
                settings.audio_address,
                *chain(*settings.llm_addresses.values()),
            }
            if address
        }
        cache = Cache(channels[settings.cache_address]) if settings.cache_address else None
        router = Router(channels[settings.router_address]) if settings.router_address else None
        pressure = Pressure(settings.shed.lag_ms / 1000, settings.shed.cpu)
        llms = {
            name: [(address, Llm(channels[address], name)) for address in addresses]
            for name, addresses in settings.llm_addresses.items()
        }
        fleet, cache_breaker = make_fleet(settings, llms, pressure.value), make_breaker(settings.breaker, "cache")
        near = NearCache(settings.near_cache_entries, settings.near_cache_ttl_ms / 1000)
        routes = Routes(settings.llm_addresses.keys(), expected=router is not None)
        aftermath = Aftermath(cache, router, near)
        flights = SingleFlight[bytes, Generation]() if settings.single_flight else None
        stand_ins = StandIns(settings.stand_ins, settings.template)
        senses = _senses(settings, channels)
        backends = Backends(cache, cache_breaker, fleet, routes, near, aftermath, flights, stand_ins, senses)
        identity = _identity(settings)
        work = [aftermath.run(), pressure.run(), identity.run()]
        work += [watch(channels[each.address], each.breaker) for pool in fleet.pools.values() for each in pool.replicas]
        if senses.vision:
            work.append(watch(channels[settings.vision_address], senses.vision_breaker))
        if senses.audio:
            work.append(watch(channels[settings.audio_address], senses.audio_breaker))
        if cache:
            work.append(watch(channels[settings.cache_address], cache_breaker))
            work.append(keep_up(lambda: near.follow(cache)))
        if router:
            work.append(keep_up(lambda: routes.follow(router)))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
            if router:
                await routes.arrived(settings.ready_wait_ms / 1000)
            yield {_SERVICE: GatewayServicer(settings, backends, identity, Door(settings.shed, pressure.value))}
            await aftermath.settle(_SETTLE_S)
            for task in tasks:
                task.cancel()


def _senses(settings: GatewaySettings, channels: Mapping[str, grpc.aio.Channel]) -> Senses:
    return Senses(
        Vision(channels[settings.vision_address]) if settings.vision_address else None,
        make_breaker(settings.breaker, "vision"),
        Audio(channels[settings.audio_address]) if settings.audio_address else None,
        make_breaker(settings.breaker, "audio"),
        settings.vision_model,
        settings.labels_per_image,
    )


def _identity(settings: GatewaySettings) -> Identity:
    try:
        return Identity(settings.api_keys, settings.tenants, settings.tenants_file)
    except BadTenants as error:
        _log.error("%s", error)
        raise SystemExit(2) from None


if __name__ == "__main__":
    serve.main("gateway", GatewaySettings, [_SERVICE], assemble)
