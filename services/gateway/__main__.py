"""Runs the gateway: `python -m services.gateway`."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import grpc
from google.protobuf.descriptor import ServiceDescriptor

from hedgerow.gateway.v1 import gateway_pb2
from services.gateway.admission.api_keys import BadTenants
from services.gateway.admission.control import AdmissionControl, Pressure
from services.gateway.admission.identity import Identity
from services.gateway.admission.intake import Intake, Limits
from services.gateway.answer import registry
from services.gateway.answer.backends import Backends
from services.gateway.api.servicer import GatewayServicer
from services.gateway.assembly import is_listed, make_backends, response_store, sharing
from services.gateway.cache_eligibility.choice import wordings
from services.gateway.config import GatewaySettings
from services.gateway.errors import BodiesWaiting
from services.gateway.http.app import HttpParts, make_app
from services.gateway.http.server.listener import HttpServer, bind
from services.gateway.policies.work_shares import WorkShares
from services.gateway.prefix_warmup import PrefixWarmup
from services.gateway.upstream.assignment import SCHEME
from services.gateway.upstream.calls import keep_up, watch
from services.gateway.upstream.fleet import Fleet
from services.gateway.upstream.media import Media, make_media
from services.gateway.upstream.members import Members
from services.gateway.upstream.readiness import Readiness
from services.gateway.upstream.router import Router, follow_contexts
from services.gateway.upstream.start import Start
from services.runtime.policy.waiting_bytes import WaitingBytes
from services.runtime.process import serve
from services.runtime.process.serve import Assembled
from services.runtime.security import tls

if TYPE_CHECKING:
    from services.gateway.upstream.discovery import Bootstrap

_SERVICE = gateway_pb2.DESCRIPTOR.services_by_name["GatewayService"]
_SETTLE_S = 1.0
_log = logging.getLogger("services.gateway")


@asynccontextmanager
async def assemble(
    settings: GatewaySettings, dialing: tls.Dialing = tls.dial
) -> AsyncIterator[Mapping[ServiceDescriptor, GatewayServicer]]:
    """The gateway, whose models and services have been looked for. `dialing`: how it reaches them."""
    found, bound = _bootstrap(settings), bind(settings)
    async with AsyncExitStack() as stack:
        if bound:
            stack.enter_context(bound)
        dial = await stack.enter_async_context(dialing(settings.tls_dir, streams=settings.standing_streams))
        channels = {
            target: await stack.enter_async_context(dial(target, service))
            for target, service in _targets(settings).items()
        }
        pressure = Pressure(settings.shed.lag_ms / 1000, settings.shed.cpu)
        work_shares = WorkShares(pressure.value, settings.shed.load, lag=pressure.lag)
        router = Router(channels[settings.router_address]) if settings.router_address else None
        backends = make_backends(settings, channels, router, work_shares, stack)
        fleet, routes = backends.fleet, backends.routes
        # Where no model is named and not all have vision, the vision service reads the pictures.
        media = make_media(settings, channels, partial(routes.sees, every=bool(settings.vision_address)))
        with _refusing(registry.BadStage):
            at = {name: channels[address] for name, address in settings.stage_addresses.items()}
            stages = await registry.opened(settings.own_stages, at, dial, stack)
        wordings()  # 6 ms that no request should wait for
        identity = _identity(settings)
        shared = await stack.enter_async_context(sharing(settings, fleet.hedges))
        quotas = shared.quotas if shared else None
        intake = _intake(settings, AdmissionControl(settings.shed, work_shares, quotas))
        warming = PrefixWarmup(settings, fleet, routes, identity)
        required = {name: Start(fleet.notice) for name in settings.ready.services}
        readiness = Readiness(fleet, settings.ready.models, required)
        work = [pressure.run(), identity.run(), warming.run(), *_work(backends, router)]
        work += _followers(settings, channels, backends, media, required)
        async with asyncio.TaskGroup() as group:
            with ExitStack() as leaving:
                for each in work:
                    leaving.callback(group.create_task(each).cancel)
                if found:
                    channel = await stack.enter_async_context(dial(found.control, "control"))
                    await _follow_lists(settings, fleet, channel, found, partial(dial, service="llm"), group, leaving)
                if router:
                    await routes.arrived(settings.ready_wait_ms / 1000)
                servicer = GatewayServicer(settings, backends, media, identity, intake, warming, stages)
                async with AsyncExitStack() as running_servers:
                    servers = []
                    if bound:
                        servers.append(http := HttpServer(settings.http))
                        behind = (routes, backends.models, fleet, intake, backends.cache, media.audio, readiness)
                        stored = response_store(settings, shared)
                        app = make_app(HttpParts(settings, servicer, http, *behind, stored))
                        await running_servers.enter_async_context(http.serving(app, bound, settings))
                    yield Assembled({_SERVICE: servicer}, servers, readiness.wait)
                await backends.write_behind.settle(_SETTLE_S)


def _work(backends: Backends, router: Router | None) -> Iterator[Coroutine[Any, Any, None]]:
    """The work of the backends beside requests, each without an end."""
    cache, l1, routes = backends.cache, backends.l1, backends.routes
    yield backends.write_behind.run()
    yield follow_contexts(backends.fleet, routes)
    if backends.tools:
        yield backends.tools.run()
    if cache:
        yield keep_up(lambda: l1.follow(cache))
        yield l1.run()
    if router:
        yield keep_up(lambda: routes.follow(router))


def _followers(
    settings: GatewaySettings,
    channels: Mapping[str, grpc.aio.Channel],
    backends: Backends,
    media: Media,
    required: Mapping[Literal["vision", "audio"], Start],
) -> Iterator[Coroutine[Any, Any, None]]:
    """Follow the connection of each backend of models and media, and the start of each model and `required` service."""
    unreached_s = settings.ready.unreached_ms / 1000
    for replica in (each for pool in backends.fleet.pools.values() for each in pool.replicas):
        yield watch(channels[replica.address], replica.breaker)
        yield replica.start.follow(channels[replica.address], unreached_s)
    if backends.cache:
        yield watch(channels[settings.cache_address], backends.cache_breaker)
    if media.vision:
        yield watch(channels[settings.vision_address], media.vision.breaker)
    if media.audio:
        yield watch(channels[settings.audio_address], media.audio.breaker)
    for name, start in required.items():
        yield start.follow(channels[getattr(settings, f"{name}_address")], unreached_s)


def _targets(settings: GatewaySettings) -> dict[str, str]:
    """The addresses to connect to at the start, with the service of each."""
    own = [
        (settings.cache_address, "cache"),
        (settings.router_address, "router"),
        (settings.vision_address, "vision"),
        (settings.audio_address, "audio"),
        *((address, name) for name, address in settings.stage_addresses.items()),
    ]
    llms = chain(*(addresses for addresses in settings.llm_addresses.values() if not is_listed(addresses)))
    tools = [(source.address, source.identity) for source in settings.tools.sources.values()]
    return {target: service for target, service in [*own, *((address, "llm") for address in llms), *tools] if target}


async def _follow_lists(
    settings: GatewaySettings,
    fleet: Fleet,
    control: grpc.aio.Channel,
    found: Bootstrap,
    connect: Callable[[str], grpc.aio.Channel],
    group: asyncio.TaskGroup,
    leaving: ExitStack,
) -> None:
    """Have the control plane list the replicas of the models that are reached by xDS, and wait a little for them."""
    watchers = {}
    for model, addresses in settings.llm_addresses.items():
        if is_listed(addresses):
            members = Members(fleet.pools[model], settings, connect, group)
            leaving.callback(members.close)
            watchers[addresses[0].removeprefix(SCHEME)] = members
    if not watchers:
        return
    from services.gateway.upstream.discovery import ControlPlane, Discovery

    discovery = Discovery(ControlPlane(control), found.node, watchers)
    leaving.callback(group.create_task(keep_up(discovery.follow)).cancel)
    if not await discovery.arrived(settings.ready_wait_ms / 1000):
        _log.warning("the control plane has not listed any llm yet")


def _bootstrap(settings: GatewaySettings) -> Bootstrap | None:
    """gRPC's xDS bootstrap, where an address needs it."""
    targets = (*_targets(settings), *chain(*settings.llm_addresses.values()))
    if not any(target.startswith(SCHEME) for target in targets):
        return None
    try:
        from services.gateway.upstream.discovery import BadBootstrap, bootstrap
    except ModuleNotFoundError:
        _log.error("an xds:/// address needs the package xds-protos: pip install 'hedgerow[gateway]'")
        raise SystemExit(2) from None
    with _refusing(BadBootstrap):
        return bootstrap(os.environ)


def _intake(settings: GatewaySettings, admission: AdmissionControl) -> Intake:
    http = settings.http
    limits = Limits(http.max_json_values, http.max_json_items, settings.max_messages)
    return Intake(WaitingBytes(settings.waiting_bytes, BodiesWaiting), admission, limits)


def _identity(settings: GatewaySettings) -> Identity:
    with _refusing(BadTenants):
        return Identity(
            settings.tenants,
            settings.tenants_file,
            anonymous=settings.anonymous,
            tokens=settings.edge_tokens,
            guard=settings.guard,
            hits=settings.hits,
        )


@contextmanager
def _refusing(error: type[Exception]) -> Iterator[None]:
    """Settings that cannot be served end the process: the error names what is wrong with them."""
    try:
        yield
    except error as refused:
        _log.error("%s", refused)
        raise SystemExit(2) from None


SERVICE = serve.Service("gateway", GatewaySettings, [_SERVICE], assemble)

if __name__ == "__main__":
    serve.main(*SERVICE)
