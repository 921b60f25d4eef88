"""The servicers and resources that a service gives its process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from google.protobuf.descriptor import ServiceDescriptor

from services.runtime.rpc import boundary


class Door(Protocol):
    """Another way to the servicers than gRPC's. Open when it is handed over."""

    def leave(self) -> None:
        """Report that this process is about to stop; requests are still taken."""

    async def stop(self, grace_s: float) -> None:
        """Take no more requests, and return when those in flight have ended: after `grace_s` at the latest."""


class Assembled(dict[ServiceDescriptor, boundary.Servicer]):
    """The servicers, and the `doors` to them beside gRPC. Health says SERVING once `ready` has returned; calls are
    served before that, too. Without `ready` health says it at once."""

    def __init__(
        self,
        servicers: Mapping[ServiceDescriptor, boundary.Servicer],
        doors: Sequence[Door] = (),
        ready: Callable[[], Awaitable[None]] | None = None,
    ):
        super().__init__(servicers)
        self.doors, self.ready = doors, ready
