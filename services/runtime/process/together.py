"""Several services in one process, on one event loop, where one process is enough.

Each has its own settings, its own port and its own health, as if it were alone. The gateway calls services of this
process directly (`in_process.py`); gRPC serves all other callers. When the process stops, the gateway is stopped first,
so that its calls in flight still find the others. A service that fails ends the process, as it would end its own.

The gateway's ports may have several sockets (SO_REUSEPORT), so that the gateway can be exchanged without a gap. The
process claims the ports first, so that no second process has them; those of a worker are its parent's (`workers.py`).
A gateway with several workers is not served here: this process keeps them running, and another number of workers is an
exchange like any other, from one to several too.

The exporter of traces, the log level and the watch of the event loop are the process's, by the settings of the gateway,
or of the last service without one; they change without a service that starts again. Spans and lines of the log name
their service. The metrics of all are in one registry, so each `metrics_address` shows them all; `hedgerow_rpc_seconds`
has the service as a label.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from services.runtime import telemetry
from services.runtime.process import metrics
from services.runtime.process.config import ServiceSettings
from services.runtime.process.health import Health
from services.runtime.process.lifetime import export_traces, lifetime
from services.runtime.process.logs import setup_logging
from services.runtime.process.ports import Claims, PortTaken, claim, places
from services.runtime.process.serve import Service, serve_until
from services.runtime.process.workers import Workers
from services.runtime.rpc.boundary import Servicer
from services.runtime.rpc.in_process import Address, Hosted, InProcessChannel
from services.runtime.security import tls

FRONT = "gateway"
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HostedService:
    """A service in a shared process, with a unique `name`."""

    name: str
    service: Service
    settings: ServiceSettings
    given: Mapping[str, Any] = field(default_factory=dict)  # as the order has it
    ports_are_claimed: bool = False  # by the parent of this worker

    @property
    def is_front(self) -> bool:
        return self.service.name == FRONT

    @property
    def has_workers(self) -> bool:
        """Whether other processes serve it, which this one keeps running."""
        return self.is_front and self.settings.processes > 1 and not self.ports_are_claimed

    def same_as(self, other: HostedService) -> bool:
        """Whether only settings of the process differ."""
        own_settings, other_settings = self.settings.of_the_service(), other.settings.of_the_service()
        return (self.name, self.service, own_settings) == (other.name, other.service, other_settings)


Bring = Callable[[Sequence[HostedService]], Awaitable[None]]
# Brings the process to what later orders ask for; may return, and be cancelled.
Follow = Callable[[Bring], Coroutine[None, None, None]]


@dataclass(eq=False)
class _Running:
    member: HostedService
    health: Health = field(default_factory=Health)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[Any] | None = None
    workers: Workers | None = None  # that serve it in place of this process

    def serves(self, wanted: HostedService) -> bool:
        """Whether nothing has to change for it. Workers also have to hear of settings of the process."""
        if self.workers or wanted.has_workers:
            return wanted == self.member
        return wanted.same_as(self.member)


class Together:
    """The services that run now, as tasks of `group`."""

    def __init__(self, group: asyncio.TaskGroup):
        self._group = group
        self._running: dict[str, _Running] = {}
        self._addresses: dict[str, Address] = {}
        self._claims = Claims()  # of fronts
        self._pages: metrics.ProbePages | None = None  # those of the front, at its `metrics_address`
        self._pages_at, self._close_pages = "", _nothing

    async def bring(self, wanted: Sequence[HostedService]) -> None:
        """Start what is new, all at once; then start again what has changed, in this order; then stop what is gone.
        Returns when all of them serve. Raises `PortTaken`, before anything is changed, where another process has the
        port of the front, of its HTTP API or of metrics; and ValueError where workers do not come to serve, the front
        then being as it was."""
        for member in wanted:
            self._refuse_taken_metrics(member)
        for front in filter(_claims_ports, wanted):
            self._claims.add(FRONT, front.settings)
        try:
            await self._bring(wanted)
        finally:
            now = filter(_claims_ports, [each.member for each in self._running.values()])
            self._claims.keep([place for front in now for place in places(front.settings)])

    async def _bring(self, wanted: Sequence[HostedService]) -> None:
        new = [each for each in wanted if each.name not in self._running]
        changed = [each for each in wanted if each not in new and not self._running[each.name].serves(each)]
        gone = self._running.keys() - {each.name for each in wanted}
        await asyncio.gather(*map(self._start, new))
        for member in changed:
            await self._exchange(member)
        for name in gone:
            await self._stop(name)

    def _refuse_taken_metrics(self, member: HostedService) -> None:
        """Raise `PortTaken` where `member` gets a metrics port that another process has. One that it has already is
        free once it moves to another host."""
        running, address = self._running.get(member.name), member.settings.metrics_address
        before = running.member.settings.metrics_address if running else ""
        if address and not member.has_workers and _port(address) not in ("0", _port(before)):
            claim(address, f"{member.name} metrics_address").close()

    async def stop(self) -> None:
        """End them all, the front first."""
        fronts = [name for name, each in self._running.items() if each.member.is_front]
        for name in fronts:
            await self._stop(name)
        await asyncio.gather(*map(self._stop, tuple(self._running)))
        await asyncio.to_thread(self._close_pages)
        self._claims.keep([])

    async def _start(self, member: HostedService) -> None:
        """Return when its health says SERVING, or when it has failed, which ends the group. Raises ValueError where its
        workers do not come to serve."""
        self._running[member.name] = running = _Running(member)
        if member.has_workers:
            await self._start_workers(running)
            return
        if member.is_front:
            await self._open_pages(running)
        running.task = self._group.create_task(self._serve(running), name=member.name)
        serving = asyncio.create_task(running.health.until_serving())
        try:
            await asyncio.wait({running.task, serving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            serving.cancel()
        if member.is_front and self._pages:
            self._pages.health = running.health

    async def _start_workers(self, front: _Running) -> None:
        """Return when all of them serve. Raises ValueError where one ends before, and has then stopped the others."""
        front.workers = Workers(front.member.given, front.member.settings, self._claims)
        front.stop = front.workers.stop
        front.task = self._group.create_task(front.workers.run(), name=front.member.name)
        try:
            await front.workers.started()
        except ValueError:
            del self._running[front.member.name]
            await _end(front)
            raise
        await self._leave_pages()  # each worker has its own

    async def _open_pages(self, front: _Running) -> None:
        """Serve its `metrics_address`. If an earlier front has the same, its pages stay, and speak of that one as long
        as it serves."""
        address = front.member.settings.metrics_address
        if address == self._pages_at:
            return
        await self._leave_pages()
        if address:
            self._pages = metrics.ProbePages(front.health, asyncio.get_running_loop())
            self._pages_at, self._close_pages = address, metrics.serve(address, self._pages)

    async def _leave_pages(self) -> None:
        await asyncio.to_thread(self._close_pages)
        self._pages_at, self._pages, self._close_pages = "", None, _nothing

    async def _exchange(self, member: HostedService) -> None:
        """Start a service in the place of the one of its name. The front serves until the other does, so no call is
        refused."""
        before = self._running[member.name]
        if before.workers and member.has_workers:
            await before.workers.bring(member.given, member.settings)
            before.member = member
        elif member.is_front:
            try:
                await self._start(member)
            except ValueError:
                self._running[member.name] = before
                raise
            except BaseException:
                before.stop.set()  # `stop` does not know it any more
                raise
            await _end(before)
        else:
            await self._stop(member.name)
            await self._start(member)

    async def _stop(self, name: str) -> None:
        await _end(self._running.pop(name))

    async def _serve(self, running: _Running) -> None:
        member, servicers = running.member, dict[str, Servicer]()
        telemetry.SERVICE.set(member.name)  # of this task and of those that it starts
        telemetry.name_spans(member.name, member.service.name)
        service, settings = member.service, member.settings
        if member.is_front:
            assemble = partial(service.assemble, dialing=self._dialing)
            settings = settings.model_copy(update={"overlaps": True, "metrics_address": ""})
            await serve_until(running.stop, settings, service.descriptors, assemble, servicers, running.health)
            return
        hosted = Hosted(service.descriptors, servicers, running.health.Watch)
        with self._at(settings.address).held_by(hosted):
            quiet = settings.model_copy(update={"blocked_loop_ms": 0})  # the front watches the loop that they share
            await serve_until(
                running.stop, quiet, service.descriptors, service.assemble, servicers, running.health, hosted
            )

    @asynccontextmanager
    async def _dialing(self, tls_dir: Path | None, *, streams: bool = True) -> AsyncIterator[tls.Dial]:
        """`tls.dial`, but for the addresses of this process."""
        async with tls.dial(tls_dir, streams=streams) as beyond:

            def dial(target: str, service: str) -> grpc.aio.Channel:
                own = {each.member.settings.address for each in self._running.values()}
                return InProcessChannel(self._at(target)) if target in own else beyond(target, service)

            yield dial

    def _at(self, address: str) -> Address:
        return self._addresses.setdefault(address, Address())


def _nothing() -> None: ...


def _port(address: str) -> str:
    return address.rpartition(":")[2]


def _claims_ports(member: HostedService) -> bool:
    return member.is_front and not member.ports_are_claimed


async def _end(running: _Running) -> None:
    running.stop.set()
    if running.task:
        await asyncio.wait({running.task})


async def run(process: str, first: Sequence[HostedService], follow: Follow) -> bool:
    """Serve `first`, and what `follow` brings later, until the process must stop. Returns whether all of `first`
    came to serve. Ends the process with 1 where another one has the front's port, or its workers do not serve."""
    served = False
    async with lifetime(process, _own(first), lambda: served) as stop, asyncio.TaskGroup() as group:
        together = Together(group)
        try:
            await together.bring(first)
        except (PortTaken, ValueError) as error:
            _log.error("%s", error)
            raise SystemExit(1) from None
        served = True

        async def bring(wanted: Sequence[HostedService]) -> None:
            await together.bring(wanted)
            log(process, wanted)
            await asyncio.to_thread(export_traces, process, _own(wanted))

        following = group.create_task(follow(bring))
        await stop.wait()
        following.cancel()
        await asyncio.wait({following})
        await together.stop()
    return served


def log(process: str, members: Sequence[HostedService]) -> None:
    """Log as the most talkative of the members."""
    setup_logging(process, min((each.settings.log_level for each in members), key=_LEVELS.index))


def _own(members: Sequence[HostedService]) -> ServiceSettings:
    """Settings of the process."""
    return next((each for each in members if each.is_front), members[-1]).settings
