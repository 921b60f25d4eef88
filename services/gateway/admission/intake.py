"""Memory for requests that are being read, by HTTP and gRPC, before they are admitted. A request that its headers
exclude is refused before its first byte is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from services.gateway.admission.control import CALL_S, READ_S, AdmissionControl
from services.gateway.admission.identity import Tenant
from services.gateway.admission.quota import Claim, Reservation
from services.gateway.policies.start_order import StartOrder
from services.runtime.limits import JSON_ITEMS, JSON_VALUES, LONG_MESSAGES
from services.runtime.policy.waiting_bytes import Held, WaitingBytes

_ITEMS_OF_A_MESSAGE = 4  # at most: in Responses a thought, a call and its result are items of one turn
_FIELDS_OF_AN_ITEM, _FIELDS_OF_A_MESSAGE = 10, 5


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a request, checked before it is parsed. `values`: of the whole text, without the names in its objects.
    `items`: elements of one array, or members of one object. `messages`: of a conversation, whose array may be longer
    than `items`."""

    values: int = JSON_VALUES
    items: int = JSON_ITEMS
    messages: int = LONG_MESSAGES

    @property
    def long(self) -> int:
        """The most elements of a conversation's array."""
        return max(self.items, _ITEMS_OF_A_MESSAGE * self.messages)

    @property
    def fields(self) -> int:
        """The most fields of a gRPC message: counting them takes 0.1 s for 100,000."""
        return min(self.values, max(_FIELDS_OF_AN_ITEM * self.items, _FIELDS_OF_A_MESSAGE * self.messages))


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Intake:
    """Memory for requests that are being read, shared by HTTP and gRPC."""

    waiting: WaitingBytes
    admission: AdmissionControl
    limits: Limits = DEFAULT_LIMITS
    starts: StartOrder = field(default_factory=StartOrder)  # of tenants, before anything of a request is read

    def reading(self, tenant: Tenant, trace_id: str, claim: Claim | None) -> RequestReading:
        """A context manager in which a request is read: its tenant's `claim` is reserved for that time, and its bytes
        are held until they are released. Raises `QuotaExceeded` if the tenant has no request left; never if `claim` is
        None."""
        self.admission.spend(tenant, CALL_S)
        reservation = None if claim is None else self.admission.expect(tenant, trace_id, claim)
        return RequestReading(Held(self.waiting, tenant.name), reservation, partial(self.admission.spend, tenant))


class RequestReading(NamedTuple):
    """The context in which a request is read; entered, it gives the held bytes. `spend` gets the CPU time of reading,
    in seconds. If reading fails, the bytes are released."""

    held: Held
    reservation: Reservation | None
    spend: Callable[[float], None]

    def __enter__(self) -> Held:
        return self.held

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.reservation:
            self.reservation.settle(0)
        self.spend(self.held.size * READ_S)
        if kind:
            self.held.give_back()
