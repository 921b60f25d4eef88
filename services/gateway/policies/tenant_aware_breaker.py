"""A breaker for a backend that several tenants use: one tenant's failures do not keep the others away.

If calls of all tenants fail, the backend is at fault. If the calls of one tenant fail while others are answered, that
tenant is: its prompts may break the engine. So each failure is charged to one of two breakers:

- the common one, when another tenant has failed too since the last success, or when no other tenant was answered
  lately, so that this tenant's failures are the only evidence. Throttling of one tenant is no evidence that
  others are throttled: a provider also answers 429 to a single request that is larger than its limit;
- else the tenant's own one, which keeps only this tenant away.

Successes count for both. A call needs a permit of both.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import Enum

from prometheus_client import Counter

from services.gateway.errors import Unfinished
from services.gateway.policies.baseline import LatencyBaseline
from services.gateway.policies.breaker import Breaker, BreakerOpen, Permit, State, Throttled
from services.runtime.errors import Exhausted, InvalidInput, NotSupported, ServiceError, Starting, TooLate

_MOST_OWN = 1_000  # breakers of single tenants; beyond it those that are closed are forgotten, then the oldest
_OPENED = Counter("hedgerow_breaker_opened_for_one", "Times that a breaker opened for one tenant alone.", ["backend"])


class Blame(Enum):
    """Whose failure the end of a call is."""

    NONE = "none"
    TENANT = "tenant"
    BACKEND = "backend"


class TenantAwarePermit:
    """The permit for one call of one tenant. It reports once how it ended; later reports are ignored, and blame neither
    tenant nor backend. A call inside `with` brings a whole reply, or its error is reported; another end is no sample.
    """

    __slots__ = ("_breaker", "_common", "_own", "_reported", "_started", "tenant")

    def __init__(self, breaker: TenantAwareBreaker, tenant: str, common: Permit, own: Permit | None):
        self._breaker, self.tenant, self._common, self._own = breaker, tenant, common, own
        self._started, self._reported = breaker.clock(), False

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None:
            self.replied()
        elif isinstance(error, ServiceError):
            self.ended(error)
        else:
            self.withdrawn()

    @property
    def probe(self) -> bool:
        """Whether others wait for how this one ends."""
        return self._common.probe or (self._own is not None and self._own.probe)

    def succeeded(self, first_s: float | None) -> None:
        """The first text came after `first_s` seconds; None: there was none to wait for."""
        if first_s is not None and first_s > self._breaker.slow_s:
            self._charge(lambda permit: permit.succeeded(first_s))
        elif self._is_first_report():
            self._breaker.answered(self.tenant)
            for permit in filter(None, (self._common, self._own)):
                permit.succeeded(first_s)

    def replied(self) -> None:
        """The whole reply is here, as soon as there was anything."""
        self._breaker.baseline.add(self._breaker.clock() - self._started)
        self.succeeded(None)

    def ended(self, problem: ServiceError) -> Blame:
        """The call brought no reply. An invalid request or an overload is no failure of the backend; nor is a backend
        that is still starting, or that had answered and was not given the time for so much work."""
        match problem:
            case InvalidInput() | NotSupported() | Exhausted() | Starting() | Unfinished():
                self.withdrawn()
                return Blame.NONE
            case TooLate():
                return self.abandoned()
        return self.failed()

    def failed(self) -> Blame:
        return self._charge(Permit.failed)

    def throttled(self, retry_after_s: float) -> Blame:
        """The backend is to be left alone for `retry_after_s` seconds; 0: it did not say for how long."""
        return self._charge(lambda permit: permit.throttled(retry_after_s), throttled=True)

    def retry_after_s(self) -> float:
        """Seconds until its tenant may get leave again."""
        return self._breaker.retry_after_s(self.tenant)

    def abandoned(self) -> Blame:
        """The caller has left, and nothing has come: a failure, where the call had at least the time that the backend
        usually needs; else slow, where it took longer than `slow_s`."""
        had_s = self._breaker.clock() - self._started
        if self._breaker.baseline.is_overdue(had_s):
            return self.failed()
        if had_s > self._breaker.slow_s:
            self._charge(Permit.silent)
        else:
            self.withdrawn()
        return Blame.NONE

    def withdrawn(self) -> None:
        """The call was not made, or its end is no sample: an invalid request is no failure of the backend that refuses
        it."""
        if self._is_first_report():
            for permit in filter(None, (self._common, self._own)):
                permit.withdrawn()

    def _charge(self, report: Callable[[Permit], None], *, throttled: bool = False) -> Blame:
        """Report to the breaker whose failure it is; to the other it says nothing."""
        if not self._is_first_report():
            return Blame.NONE
        if not self._breaker.is_tenants_own_failure(self.tenant, throttled=throttled):
            report(self._common)
            if self._own:
                self._own.withdrawn()
            return Blame.BACKEND
        if own := self._own or self._breaker.breaker_of(self.tenant).enter():
            report(own)
        self._common.withdrawn()
        return Blame.TENANT

    def _is_first_report(self) -> bool:
        first, self._reported = not self._reported, True
        return first


class TenantAwareBreaker:
    """`make`: `Breaker` with all that a closed one for the backend takes. `baseline`: how long the backend takes.
    `window_s`: how far back the success of another tenant speaks for the backend. A process that knows no tenants has
    one, whose name is empty. `shown` is what callers know the backend by."""

    def __init__(self, make: Callable[..., Breaker], baseline: LatencyBaseline, window_s: float, shown: str):
        self._shown = shown
        self._make, self._common, self.baseline, self._window_s = make, make(), baseline, window_s
        self.connections = 0  # how often its connection has come: the next one may be another process
        self._own: dict[str, Breaker] = {}
        self._gone = False
        self._failing: set[str] = set()  # tenants that failed since the last success
        # The tenant that was answered last, and the last one before it, each with the time.
        self._answered, self._other = ("", float("-inf")), ("", float("-inf"))
        self.clock, self.slow_s = self._common.clock, self._common.slow_s

    def enter(self, tenant: str = "") -> TenantAwarePermit | None:
        """A permit for a call now, or None."""
        common = self._common.enter()
        if common is None:
            return None
        own = self._own.get(tenant)
        permit = own.enter() if own else None
        if own and permit is None:
            common.withdrawn()
            return None
        return TenantAwarePermit(self, tenant, common, permit)

    def would_admit(self, tenant: str = "") -> bool:
        """Whether `enter` would return a permit. Changes nothing."""
        own = self._own.get(tenant)
        return self._common.would_admit() and (own is None or own.would_admit())

    def why(self, tenant: str = "") -> str:
        """Why there is no permit, for people; empty when there is one."""
        own = self._own.get(tenant)
        return self._common.why or (f"{own.why}, of this tenant alone" if own and own.why else "")

    def retry_after_s(self, tenant: str = "") -> float:
        """Seconds until the next call may be permitted; 0 when it is now."""
        own = self._own.get(tenant)
        return max(self._common.retry_after_s(), own.retry_after_s() if own else 0.0)

    def refusal(self, tenant: str = "") -> BreakerOpen | Throttled:
        """The error for a caller that gets no permit."""
        message, own = f"{self._shown}: {self.why(tenant)}", self._own.get(tenant)
        refusing = own if own and self._common.would_admit() else self._common
        kind = Throttled if refusing.throttled else BreakerOpen
        return kind(message, retry_delay_s=self.retry_after_s(tenant), backend=self._shown)

    def disconnected(self) -> None:
        """The connection is lost: calls would fail, so none need to find that out."""
        self._common.disconnected()

    def connected(self) -> None:
        """The connection is there again."""
        self.connections += 1
        self._common.connected()

    def started(self) -> None:
        """The backend has started: earlier calls are no samples of it."""
        self._common.started()
        self._own.clear()
        self._failing.clear()

    def forget(self) -> None:
        """The backend is gone for good: remove its metrics, also for calls that still report."""
        self._gone = True
        for breaker in (self._common, *self._own.values()):
            breaker.forget()
        with suppress(KeyError):
            _OPENED.remove(self._common.name)

    @property
    def state(self) -> State:
        return self._common.state

    def answered(self, tenant: str) -> None:
        self._failing.clear()
        if self._answered[0] != tenant:
            self._other = self._answered
        self._answered = tenant, self.clock()

    def is_tenants_own_failure(self, tenant: str, *, throttled: bool = False) -> bool:
        """Note a failed call of `tenant`: whether that is the tenant's own failure, and not the backend's."""
        if len(self._failing) < 2:  # more tenants change nothing
            self._failing.add(tenant)
        other = self._other if self._answered[0] == tenant else self._answered
        alone = self._failing == {tenant}
        return alone and ((throttled and tenant != "") or self.clock() - other[1] <= self._window_s)

    def breaker_of(self, tenant: str) -> Breaker:
        """The breaker for failures of one tenant alone."""
        if tenant not in self._own:
            if len(self._own) >= _MOST_OWN:
                self._own = {name: each for name, each in self._own.items() if each.state is not State.CLOSED}
            if len(self._own) >= _MOST_OWN:
                del self._own[next(iter(self._own))]
            self._own[tenant] = self._make(in_metrics=False, on_change=None if self._gone else _count)
        return self._own[tenant]


def _count(breaker: Breaker, state: State) -> None:
    if state is State.OPEN:
        _OPENED.labels(breaker.name).inc()
