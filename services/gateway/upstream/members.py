"""The replicas of a model that come and go, as the control plane lists them.

A replica that is no longer listed gets no new call. Its answers under way go on to their end; then its connection is
closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

import grpc

from services.gateway.config import GatewaySettings
from services.gateway.upstream.assignment import AssignedDrill, Assignment
from services.gateway.upstream.balance import Locality
from services.gateway.upstream.calls import watch
from services.gateway.upstream.fleet import Pool
from services.gateway.upstream.llm import Llm
from services.gateway.upstream.replica import Replica, make_replica
from services.runtime.deadline import until_set

_FINISH_S = 600.0  # for the answers that a replica writes when it is taken out: longer than any budget


class Members:
    """Keeps the replicas of `pool` in line with its assignments. Connections are looked after in `group`."""

    def __init__(
        self,
        pool: Pool,
        settings: GatewaySettings,
        connect: Callable[[str], grpc.aio.Channel],
        group: asyncio.TaskGroup,
    ):
        self._pool, self._settings, self._connect, self._group = pool, settings, connect, group
        self._numbers = count(1)
        self._left: dict[str, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._unreached_s = settings.ready.unreached_ms / 1000
        pool.awaited = self._unreached_s > 0
        self._awaiting = asyncio.get_running_loop().call_later(self._unreached_s, self._await_no_more)

    def take(self, assignment: Assignment) -> None:
        listed = dict(assignment.replicas)
        if listed:
            self._await_no_more()
        for replica in [each for each in self._pool.replicas if each.address not in listed]:
            self._pool.replicas.remove(replica)
            self._left.pop(replica.address).set()
        for replica in self._pool.replicas:
            replica.locality = listed.pop(replica.address)
        for address, locality in listed.items():
            self._join(address, locality)
        self._pool.drop_share = assignment.drop_share
        self._pool.notice.notify()

    def drill(self, drill: AssignedDrill) -> None:
        """Have a drill done to the calls from now on."""
        self._pool.drill = drill

    def close(self) -> None:
        self._awaiting.cancel()
        for task in self._tasks:
            task.cancel()

    def _await_no_more(self) -> None:
        self._pool.awaited = False
        self._pool.notice.notify()

    def _join(self, address: str, locality: Locality) -> None:
        channel, left = self._connect(address), asyncio.Event()
        model, llm = self._pool.model, Llm(channel, self._pool.model)
        replica = make_replica(
            self._settings, model, next(self._numbers), address, llm, self._pool.baseline, self._pool.notice
        )
        replica.locality = locality
        self._pool.replicas.append(replica)
        self._left[address] = left
        task = self._group.create_task(self._look_after(replica, channel, left))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _follow(self, replica: Replica, channel: grpc.aio.Channel) -> None:
        """Never returns."""
        await asyncio.gather(watch(channel, replica.breaker), replica.start.follow(channel, self._unreached_s))

    async def _look_after(self, replica: Replica, channel: grpc.aio.Channel, left: asyncio.Event) -> None:
        """Watch a replica's connection until it has left, and close it when its calls are over."""
        grace_s: float | None = None
        try:
            await until_set(left, self._follow(replica, channel))
            grace_s = _FINISH_S
        finally:
            await channel.close(grace_s)
            if replica.address not in self._left:  # else it has come back meanwhile, under the same name
                replica.breaker.forget()
