"""Runs the gateway: `python -m services.gateway`."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import grpc
from google.protobuf.descriptor import ServiceDescriptor

from hedgerow.gateway.v1 import gateway_pb2
from services.gateway.admission.control import AdmissionControl, Pressure
from services.gateway.admission.identity import BadTenants, Identity
from services.gateway.admission.intake import Intake, Limits
from services.gateway.answer.backends import Backends, Fallbacks, Prompts
from services.gateway.answer.stages import opening
from services.gateway.answer.stages.cache.l1 import L1Cache
from services.gateway.answer.stages.cache.verification import CacheVerification
from services.gateway.answer.stages.cache.write_behind import WriteBehind
from services.gateway.answer.stages.summaries import Summaries
from services.gateway.api.servicer import GatewayServicer
from services.gateway.cache_eligibility.choice import wordings
from services.gateway.config import GatewaySettings
from services.gateway.errors import BodiesWaiting
from services.gateway.generation.shared import Shared
from services.gateway.generation.stack import make_stack
from services.gateway.http.app import Parts, make_app
from services.gateway.http.server.listener import HttpServer, bind
from services.gateway.output_validation.forms import Forms
from services.gateway.policies.baseline import LatencyBaseline
from services.gateway.policies.shared_breaker import SharedBreaker
from services.gateway.prefix_warmup import PrefixWarmup
from services.gateway.shared import sharing
from services.gateway.tools.toolbox import make_toolbox
from services.gateway.upstream.assignment import SCHEME
from services.gateway.upstream.completion import Llm
from services.gateway.upstream.fleet import Fleet, make_breaker, make_fleet
from services.gateway.upstream.media import Media, make_media
from services.gateway.upstream.members import Members
from services.gateway.upstream.readiness import Readiness
from services.gateway.upstream.routes import Routes, follow_contexts
from services.gateway.upstream.start import Start
from services.gateway.upstream.stubs import Cache, Router, keep_up, watch
from services.runtime.policy.waiting_bytes import WaitingBytes
from services.runtime.process import serve
from services.runtime.process.assembled import Assembled
from services.runtime.security import tls

if TYPE_CHECKING:
    from services.gateway.upstream.discovery import Bootstrap, Control

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
        dial = await stack.enter_async_context(dialing(settings.tls_dir))
        channels = {
            target: await stack.enter_async_context(dial(target, service))
            for target, service in _targets(settings).items()
        }
        cache = Cache(channels[settings.cache_address]) if settings.cache_address else None
        router = Router(channels[settings.router_address]) if settings.router_address else None
        pressure = Pressure(settings.shed.lag_ms / 1000, settings.shed.cpu)
        llms = {
            name: [] if _is_listed(addresses) else [(address, Llm(channels[address], name)) for address in addresses]
            for name, addresses in settings.llm_addresses.items()
        }
        fleet, cache_breaker = make_fleet(settings, llms, pressure.value), _breaker(settings, "cache")
        l1 = L1Cache(settings.l1_cache_entries, settings.l1_cache_ttl_ms / 1000, settings.l1_cache_bytes)
        routes = Routes(settings.llm_addresses.keys(), expected=router is not None, tell=fleet.expect)
        write_behind = WriteBehind(cache, router, l1, settings.write_behind_bytes)
        models = make_stack(fleet, write_behind.observe, shared=settings.single_flight)
        fallbacks = Fallbacks(settings.fallbacks, settings.template)
        media = replace(make_media(settings, channels, partial(_breaker, settings)), sees=routes.sees)
        prompts = _prompts(settings, models, routes, stack)
        toolbox = make_toolbox(settings, fleet.retry, channels.__getitem__)
        backends = Backends(
            cache,
            cache_breaker,
            fleet,
            routes,
            l1,
            write_behind,
            models,
            fallbacks,
            prompts,
            settings.cascade,
            toolbox,
            _judging(settings, models, routes, cache, stack),
            Forms(settings.response_format.check_ms, by_default=settings.response_format.check),
            omits=settings.untranslated == "omit",
        )
        with _refusing(opening.BadStage):
            at = {name: channels[address] for name, address in settings.stage_addresses.items()}
            stages = await opening.opened(settings.own_stages, at, dial, stack)
        wordings()  # 6 ms that no request should wait for
        identity = _identity(settings)
        admission = AdmissionControl(
            settings.shed, pressure.value, await stack.enter_async_context(sharing(settings, fleet.hedges))
        )
        intake = _intake(settings, admission)
        warming = PrefixWarmup(settings, fleet, routes, identity)
        work = [write_behind.run(), pressure.run(), identity.run(), warming.run(), follow_contexts(fleet, routes)]
        work += [toolbox.run()] if toolbox else []
        required = {name: Start(fleet.notice) for name in settings.ready.services}
        work += _followers(settings, channels, fleet, media, required)
        readiness = Readiness(fleet, settings.ready.models, required)
        if cache:
            work.append(watch(channels[settings.cache_address], cache_breaker))
            work += [keep_up(lambda: l1.follow(cache)), l1.run()]
        if router:
            work.append(keep_up(lambda: routes.follow(router)))
        async with asyncio.TaskGroup() as group:
            with ExitStack() as leaving:
                for each in work:
                    leaving.callback(group.create_task(each).cancel)
                if found:
                    from services.gateway.upstream.discovery import Control

                    control = Control(await stack.enter_async_context(dial(found.control, "control")))
                    await _follow_lists(settings, fleet, control, found, partial(dial, service="llm"), group, leaving)
                if router:
                    await routes.arrived(settings.ready_wait_ms / 1000)
                servicer = GatewayServicer(settings, backends, media, identity, intake, warming, stages)
                async with AsyncExitStack() as open_doors:
                    doors = []
                    if bound:
                        doors.append(http := HttpServer(settings.http))
                        app = make_app(
                            Parts(settings, servicer, http, routes, fleet, intake, cache, media.hearing, readiness)
                        )
                        await open_doors.enter_async_context(http.serving(app, bound, settings))
                    yield Assembled({_SERVICE: servicer}, doors, readiness.wait)
                await write_behind.settle(_SETTLE_S)


def _followers(
    settings: GatewaySettings,
    channels: Mapping[str, grpc.aio.Channel],
    fleet: Fleet,
    media: Media,
    required: Mapping[Literal["vision", "audio"], Start],
) -> Iterator[Coroutine[Any, Any, None]]:
    """Follow the connection of each backend of models and media, and the start of each model and `required` service."""
    unreached_s = settings.ready.unreached_ms / 1000
    for replica in (each for pool in fleet.pools.values() for each in pool.replicas):
        yield watch(channels[replica.address], replica.breaker)
        yield replica.start.follow(channels[replica.address], unreached_s)
    if media.seeing:
        yield watch(channels[settings.vision_address], media.seeing.breaker)
    if media.hearing:
        yield watch(channels[settings.audio_address], media.hearing.breaker)
    for name, start in required.items():
        yield start.follow(channels[getattr(settings, f"{name}_address")], unreached_s)


def _prompts(settings: GatewaySettings, models: Shared, routes: Routes, stack: AsyncExitStack) -> Prompts:
    """The settings and summaries that prompts are made with; the summaries close with `stack`."""
    if not settings.prompt.summary_model:
        return Prompts(settings.prompt, settings.system_prompts)
    summaries = Summaries(settings.prompt, models, routes)
    stack.push_async_callback(summaries.close)
    return Prompts(settings.prompt, settings.system_prompts, summaries)


def _judging(
    settings: GatewaySettings, models: Shared, routes: Routes, cache: Cache | None, stack: AsyncExitStack
) -> CacheVerification | None:
    """The judge of the stored answers that a cache draws; it closes with `stack`."""
    if cache is None or not settings.judge.at_once:
        return None
    judging = CacheVerification(settings.judge, models, routes, cache)
    stack.push_async_callback(judging.close)
    return judging


def _targets(settings: GatewaySettings) -> dict[str, str]:
    """Where to connect to from the start on, and the service that is there."""
    own = [
        (settings.cache_address, "cache"),
        (settings.router_address, "router"),
        (settings.vision_address, "vision"),
        (settings.audio_address, "audio"),
        *((address, name) for name, address in settings.stage_addresses.items()),
    ]
    llms = chain(*(addresses for addresses in settings.llm_addresses.values() if not _is_listed(addresses)))
    tools = [(source.address, source.identity) for source in settings.tools.sources.values()]
    return {target: service for target, service in [*own, *((address, "llm") for address in llms), *tools] if target}


def _is_listed(addresses: Sequence[str]) -> bool:
    """Whether the control plane lists the replicas."""
    return addresses[0].startswith(SCHEME)


async def _follow_lists(
    settings: GatewaySettings,
    fleet: Fleet,
    control: Control,
    found: Bootstrap,
    connect: Callable[[str], grpc.aio.Channel],
    group: asyncio.TaskGroup,
    leaving: ExitStack,
) -> None:
    """Have the control plane list the replicas of the models that are reached by xDS, and wait a little for them."""
    watchers = {}
    for model, addresses in settings.llm_addresses.items():
        if _is_listed(addresses):
            members = Members(fleet.pools[model], settings, connect, group)
            leaving.callback(members.close)
            watchers[addresses[0].removeprefix(SCHEME)] = members
    if not watchers:
        return
    from services.gateway.upstream.discovery import Discovery

    discovery = Discovery(control, found.node, watchers)
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


def _breaker(settings: GatewaySettings, stage: Literal["cache", "vision", "audio"]) -> SharedBreaker:
    expected_ms: float = getattr(settings.expected, f"{stage}_ms")
    return make_breaker(settings.breaker, stage, LatencyBaseline(expected_ms / 1000))


def _intake(settings: GatewaySettings, admission: AdmissionControl) -> Intake:
    http = settings.http
    limits = Limits(http.max_json_values, http.max_json_items, settings.max_messages)
    return Intake(WaitingBytes(http.max_waiting_bytes, BodiesWaiting), admission, limits)


def _identity(settings: GatewaySettings) -> Identity:
    with _refusing(BadTenants):
        return Identity(
            settings.api_keys,
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
