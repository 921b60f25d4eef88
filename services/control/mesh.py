"""The mesh as it is now: the topology in force, the addresses behind its names, what the endpoints say of themselves,
and what clients get of all that. Listeners are woken when it changes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterable, Iterator
from contextlib import contextmanager

from services.control import metrics
from services.control.health import HealthReport, Watches
from services.control.members import Health, Member, ResolvedNames, Seen, identity, is_ip, members, seen, split
from services.control.snapshot import Kind, Renderer, Snapshot, digest
from services.control.topology import BadTopology, Topology
from services.runtime.deadline import Clock
from services.runtime.security.tls import Dial

_log = logging.getLogger(__name__)


class MeshState:
    """Used on one event loop. `run` keeps it up to date."""

    def __init__(
        self,
        renderer: Renderer,
        names: ResolvedNames,
        dial: Dial,
        *,
        health_timeout_s: float,
        clock: Clock = time.monotonic,
    ):
        self._renderer = renderer
        self.problem = ""  # why the file as it is now is not in force
        self.version = ""
        self.settled = asyncio.Event()  # every endpoint has been asked once, or has had the time to answer
        self._names, self._health_timeout_s = names, health_timeout_s
        self._watches = Watches(dial, health_timeout_s, self._touch, clock)
        self._members: dict[str, tuple[Member, ...]] = {}
        self._rendered: dict[tuple[str, Kind], Snapshot] = {}
        self._listeners: set[asyncio.Event] = set()
        self._turn = asyncio.Lock()  # to change the topology, or what its names stand for
        self._touched = False

    @property
    def topology(self) -> Topology:
        """The topology in force."""
        return self._renderer.topology

    async def run(self, renderers: AsyncIterable[Renderer | BadTopology], resolve_interval_s: float) -> None:
        """Follow topologies, names and endpoints until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(renderers, group))
            await self._put_in_force(self._renderer, group)
            asyncio.get_running_loop().call_later(self._health_timeout_s, self.settled.set)
            while True:
                await asyncio.sleep(resolve_interval_s)
                await self._look_up_again(group)

    def snapshot(self, region: str, kind: Kind) -> Snapshot:
        """The snapshot for clients of a kind in a region."""
        key = region if region in self.topology.regions else "", kind
        if key not in self._rendered:
            everyone = {name: self.seen(name) for name in self.topology.services}
            self._rendered[key] = self._renderer.snapshot(everyone, *key)
        return self._rendered[key]

    def seen(self, service: str) -> tuple[Seen, ...]:
        """The members of a service, and those of them in service."""
        of = self._members.get(service, ())
        return seen(of, {each.address: self.report(service, each).health for each in of})

    def report(self, service: str, member: Member) -> HealthReport:
        """The last word of a member."""
        return self._watches.report(service, member.address)

    @contextmanager
    def listening(self) -> Iterator[asyncio.Event]:
        """An event that is set whenever clients may get something else than before."""
        event = asyncio.Event()
        self._listeners.add(event)
        try:
            yield event
        finally:
            self._listeners.discard(event)

    async def _follow(self, renderers: AsyncIterable[Renderer | BadTopology], group: asyncio.TaskGroup) -> None:
        async for renderer in renderers:
            bad = isinstance(renderer, BadTopology)
            if isinstance(renderer, BadTopology):
                _log.warning("%s; the last good one stays in force", renderer)
            elif renderer.topology != self.topology:
                await self._put_in_force(renderer, group)
                _log.info("the topology has changed: %d services", len(self.topology.services))
            self.problem = str(renderer) if bad else ""  # no sooner than a good one is in force
            metrics.TOPOLOGY_REFUSED.set(bad)

    async def _put_in_force(self, renderer: Renderer, group: asyncio.TaskGroup) -> None:
        async with self._turn:
            await self._names.refresh(_names(renderer.topology))
            for service in self.topology.services.keys() - renderer.topology.services.keys():
                for health in Health:
                    metrics.ENDPOINTS.remove(service, health.name.lower())
            self._renderer = renderer
            self._gather(group)
            self._publish()

    async def _look_up_again(self, group: asyncio.TaskGroup) -> None:
        async with self._turn:
            if await self._names.refresh(_names(self.topology)):
                self._gather(group)

    def _gather(self, group: asyncio.TaskGroup) -> None:
        """Find the members again, after the topology or the names have changed."""
        services = self.topology.services
        self._members = {name: members(each.endpoints, self._names.__getitem__) for name, each in services.items()}
        watched = {
            (name, each.address): identity(name, services[name]) for name, of in self._members.items() for each in of
        }
        self._watches.follow(watched, group)
        self._touch()

    def _touch(self) -> None:
        """Publish a change; changes at the same time are published together."""
        if not self._touched:
            self._touched = True
            asyncio.get_running_loop().call_soon(self._publish)

    def _publish(self) -> None:
        if not self._touched:
            return  # it was published by now
        self._touched = False
        self._rendered.clear()
        self._count()
        if self._watches.complete():
            self.settled.set()
        before, self.version = self.version, self._version()
        if self.version != before:
            metrics.SNAPSHOTS.inc()
            for listener in self._listeners:
                listener.set()

    def _version(self) -> str:
        """The version of all resources, for a client without a region, and of the regions' positions, on which other
        clients' resources depend."""
        rendered = (self.snapshot("", kind) for kind in Kind)
        resources = [each for snapshot in rendered for of in snapshot.values() for each in of.values()]
        regions = [f"{name}={region}" for name, region in self.topology.regions.items()]
        return digest(each.encode() for each in [*(f"{each.name}={each.version}" for each in resources), *regions])

    def _count(self) -> None:
        for name in self.topology.services:
            healths = [each.health for each in self.seen(name)]
            for health in Health:
                metrics.ENDPOINTS.labels(name, health.name.lower()).set(healths.count(health))


def _names(topology: Topology) -> set[str]:
    """The names to look up."""
    hosts = (split(each.address)[0] for service in topology.services.values() for each in service.endpoints)
    return {host for host in hosts if not is_ip(host)}
