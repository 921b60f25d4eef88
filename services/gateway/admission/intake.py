"""Requests on their way in, by HTTP and by gRPC: bytes that are not admitted yet, and that the clients of all tenants
may send at once. A request that its headers alone exclude is refused before its first byte is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from services.gateway.admission.control import CALL_S, AdmissionControl
from services.gateway.admission.identity import Tenant
from services.gateway.admission.quota import Claim, Reservation
from services.runtime.limits import JSON_ITEMS, JSON_VALUES, LONG_MESSAGES
from services.runtime.policy.waiting_bytes import Held, WaitingBytes

_ITEMS_OF_A_MESSAGE = 4  # of Responses: a thought, a call and its result are items of one turn
_FIELDS_OF_AN_ITEM, _FIELDS_OF_A_MESSAGE = 10, 5


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a request, checked before objects are made of it. `values`: of the whole text, without the names in its
    objects. `items`: the elements of one array, or the members of one object. `messages`: the most of a conversation,
    whose array may be longer than `items`."""

    values: int = JSON_VALUES
    items: int = JSON_ITEMS
    messages: int = LONG_MESSAGES

    @property
    def long(self) -> int:
        """Elements of a conversation's array."""
        return max(self.items, _ITEMS_OF_A_MESSAGE * self.messages)

    @property
    def fields(self) -> int:
        """Of a message by gRPC, altogether: they are counted one by one, which takes 0.1 s for 100,000."""
        return min(self.values, max(_FIELDS_OF_AN_ITEM * self.items, _FIELDS_OF_A_MESSAGE * self.messages))


USUAL = Limits()


@dataclass(frozen=True, slots=True)
class Intake:
    """The room for requests that are being read, shared by HTTP and gRPC."""

    waiting: WaitingBytes
    admission: AdmissionControl
    limits: Limits = USUAL

    def reading(self, tenant: Tenant, trace_id: str, claim: Claim | None) -> RequestReading:
        """To read a request inside: its tenant has a `claim` for as long, and its bytes are held until they are given
        back. Raises `QuotaExceeded` for a request that would be refused whatever is in it; with None as its claim none
        would be."""
        self.admission.spend(tenant, CALL_S)
        reservation = None if claim is None else self.admission.expect(tenant, trace_id, claim)
        return RequestReading(Held(self.waiting, tenant.name), reservation)


class RequestReading(NamedTuple):
    """A request that is read inside. Bytes of one that fails are held no longer."""

    held: Held
    reservation: Reservation | None

    def __enter__(self) -> Held:
        return self.held

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.reservation:
            self.reservation.settle(0)
        if kind:
            self.held.give_back()
