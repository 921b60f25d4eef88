"""A caller's credential for as long as its call lasts: a key may be revoked, and a token may expire, before it ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterable
from contextlib import suppress
from typing import NoReturn, TypeVar

from hedgerow.identities import EDGE
from services.gateway.admission.identity import Identity, Tenant
from services.gateway.errors import CredentialExpired, KeyUnknown
from services.runtime.deadline import Clock
from services.runtime.errors import ServiceError
from services.runtime.rpc.authorization import EXPIRES_HEADER, TENANT_HEADER
from services.runtime.rpc.boundary import header

_T = TypeVar("_T")
_LOOK_S = 0.5
_SKEW_S = 60.0  # Envoy's: so long after it has expired, the edge still takes a token


class Credential:
    """`tenant` is whose it is. Raises `KeyUnknown`, `KeyExpired` or `CredentialsDiffer`.

    What the metadata says of a token, its tenant and its end, is believed of `caller`, an identity, only where that is
    the edge.
    """

    __slots__ = ("_authorization", "_clock", "_expires", "_identity", "_proven", "_version", "tenant")

    def __init__(
        self, identity: Identity, metadata: Iterable[tuple[str, str | bytes]], caller: str, clock: Clock = time.time
    ):
        self._identity, self._version, self._clock = identity, identity.version, clock
        self._authorization = header(metadata, "authorization")
        self._proven = [value for key, value in metadata if key == TENANT_HEADER] if caller == EDGE else []
        self._expires = _expires(metadata) if caller == EDGE else None
        self.tenant: Tenant = identity.tenant(self._authorization, self._proven)

    def check(self) -> None:
        """Raise `KeyUnknown`, `KeyExpired` or `CredentialExpired` where it is not good any more."""
        if self._expires is not None and self._clock() >= self._expires:
            raise CredentialExpired("authorization: the token has expired")
        if self._version != self._identity.version:
            self._look_again()

    async def watch(self) -> NoReturn:
        """Raise what `check` does, as soon as it does."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self.check()

    async def during(self, work: Awaitable[_T]) -> _T:
        """Await `work`, and cancel it where the credential ends before it. Raises what `check` does. It costs a timer:
        a task for each call would cost more than the check."""
        loop = asyncio.get_running_loop()
        ended: ServiceError | None = None
        timer: asyncio.TimerHandle

        def look() -> None:
            nonlocal timer, ended
            try:
                self.check()
                timer = loop.call_later(_LOOK_S, look)
            except ServiceError as error:
                ended = error
                scope.reschedule(loop.time())

        timer = loop.call_later(_LOOK_S, look)
        try:
            async with asyncio.timeout(None) as scope:
                return await work
        except TimeoutError:
            if ended is None:
                raise
            raise ended from None
        finally:
            timer.cancel()

    def _look_again(self) -> None:
        version, tenant = self._identity.version, self._identity.tenant(self._authorization, self._proven)
        if tenant.name != self.tenant.name:
            raise KeyUnknown("authorization: this key is of another tenant now")
        self.tenant, self._version = tenant, version


def _expires(metadata: Iterable[tuple[str, str | bytes]]) -> float | None:
    """When the edge takes the token no more, in seconds since 1970; None where there is none."""
    with suppress(ValueError):
        return float(header(metadata, EXPIRES_HEADER) or "") + _SKEW_S
    return None
