"""Bodies on their way in: bytes of requests that nothing has admitted yet, and that all tenants' clients may send at
once. What the headers alone say is decided before the first of them is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from services.gateway.admission.control import AdmissionControl
from services.gateway.admission.identity import Tenant
from services.gateway.admission.quota import CONVERSATION, NOTHING
from services.gateway.http.errors import BodiesWaiting
from services.runtime.errors import Exhausted
from services.runtime.policy.waiting_bytes import WaitingBytes


class Held:
    """The bytes that one request holds of the room for bodies."""

    def __init__(self, waiting: WaitingBytes, tenant: str) -> None:
        self._waiting, self._tenant, self._bytes = waiting, tenant, 0

    def take(self, size: int) -> None:
        """Hold `size` bytes more. Raises `BodiesWaiting`, and then holds none."""
        try:
            self._waiting.take(self._tenant, size)
        except Exhausted as full:
            self.give_back()
            raise BodiesWaiting(f"body: no room for it now; {full.message}", retry_delay_s=full.retry_delay_s) from None
        self._bytes += size

    def give_back(self) -> None:
        """Hold none: the request is admitted, or over."""
        size, self._bytes = self._bytes, 0
        if size:
            self._waiting.give_back(self._tenant, size)


@dataclass(frozen=True, slots=True)
class Intake:
    """What the routes of a process share."""

    waiting: WaitingBytes
    admission: AdmissionControl

    @contextmanager
    def reading(self, tenant: Tenant, trace_id: str, *, keyed: bool) -> Iterator[Held]:
        """A body is read inside: its tenant has a place for as long, and the bytes are held until they are given back.
        `keyed`: the request may ask for an answer that has a place already. Raises `QuotaExceeded` for a request that
        would be refused whatever is in it."""
        with self.admission.reading(tenant, trace_id, NOTHING if keyed else CONVERSATION):
            held = Held(self.waiting, tenant.name)
            try:
                yield held
            except BaseException:
                held.give_back()
                raise
