"""One source of tools, as the gateway calls it: its lists, its limiter, a breaker for each tool, and results that may
answer again."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from opentelemetry.trace import Span

from hedgerow.tool.v1 import tool_pb2
from services.gateway.admission.identity import Tenant
from services.gateway.config import GatewaySettings
from services.gateway.policies.baseline import LatencyBaseline
from services.gateway.policies.concurrency_limit import Fixed
from services.gateway.policies.limiter import Limiter
from services.gateway.policies.retry import Retry
from services.gateway.policies.slot import SlotRequest
from services.gateway.policies.tenant_aware_breaker import TenantAwareBreaker, TenantAwarePermit
from services.gateway.tools.listing import Checker, Listing, Tool
from services.gateway.tools.source import CallAttempt, ToolSource
from services.gateway.upstream.replica import make_breaker
from services.runtime.deadline import Clock, Deadline
from services.runtime.errors import ServiceError
from services.runtime.policy.fair_lru import FairLru

_OVERHEAD_BYTES = 600  # of a result beside its message's fields
Place = tuple[str, str, str, str]  # a tenant, a source, a tool of its, arguments
_log = logging.getLogger(__name__)
_MOST_TENANTS = 1_000  # whose lists are kept, where each has its own
_MOST_BREAKERS = 1_000
_AGAIN_S = 1.0  # before a list is asked for again that did not come, or did not have what is looked for
_QUEUE = 1_000
Waited = Callable[[], bool]


@dataclass(frozen=True, slots=True, eq=False)
class _KeptOutcome:
    tenant: str
    result: tool_pb2.CallToolResponse
    size: int
    until: float


class Reused:
    """Results that may answer again, for as long as their tool says: for the same tenant and the same arguments. At
    most `max_bytes` of them; tenants share the room fairly."""

    def __init__(self, max_bytes: int, clock: Clock = time.monotonic):
        self._kept: FairLru[Place, _KeptOutcome] = FairLru(max_bytes)
        self._clock = clock

    def get(self, place: Place) -> tool_pb2.CallToolResponse | None:
        kept = self._kept.get(place)
        if kept is None:
            return None
        if kept.until <= self._clock():
            self._kept.pop(place)
            return None
        self._kept.use(place)
        return kept.result

    def put(self, place: Place, result: tool_pb2.CallToolResponse, for_s: float) -> None:
        size = result.ByteSize() + sum(map(len, place)) + _OVERHEAD_BYTES
        self._kept.replace(place, _KeptOutcome(place[0], result, size, self._clock() + for_s))


@dataclass(slots=True)
class _Listed:
    """The last list. `asked_at` moves with each try, `listed_at` with each success."""

    checker: Checker
    listing: Listing | None = None
    listed_at: float = float("-inf")
    asked_at: float = float("-inf")
    problem: str = ""
    asking: asyncio.Task[None] | None = None


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """The outcome of a call. `retried`: why it was made twice."""

    result: tool_pb2.CallToolResponse
    reused: bool = False
    retried: str = ""


class SourceClient:
    """A client of the source `name`."""

    def __init__(
        self,
        name: str,
        source: ToolSource,
        settings: GatewaySettings,
        reused: Reused,
        retry: Retry,
        clock: Clock = time.monotonic,
        make_key: Callable[[], str] = lambda: uuid.uuid4().hex,
    ):
        self.name, self.source, self._settings, self._clock = name, source, settings, clock
        self.own = settings.tools.sources[name]
        self._reused, self._retry, self._make_key = reused, retry, make_key
        self._lists: dict[str, _Listed] = {}
        self._breakers: dict[str, TenantAwareBreaker] = {}
        self._limiter = Limiter(
            f"tools {name}", Fixed(self.own.concurrency), _QUEUE, self.own.queue_ms / 1000, "deadline", clock=clock
        )

    async def listing(self, tenant: str, within_s: float, missing: bool = False) -> Listing | None:
        """The source's list for a tenant; None where there never was one. An old list is renewed in the background.
        A first one, or one of which something is `missing`, is waited for, but not while the source is down."""
        listed, now = self._listed(tenant), self._clock()
        refresh_s = self._settings.tools.refresh_ms / 1000
        stale = now - listed.listed_at >= refresh_s or missing
        if stale and not listed.asking and now - listed.asked_at >= _AGAIN_S:
            listed.asking = asyncio.create_task(self._ask(tenant, listed))
        if listed.asking and not listed.problem and (listed.listing is None or missing):
            await asyncio.wait({listed.asking}, timeout=within_s)
        return listed.listing

    def listed(self, tenant: str) -> Listing | None:
        """The last list; None where there never was one."""
        return self._listed(tenant).listing

    def problem(self, tenant: str) -> str:
        """The problem of the source or its list, for people."""
        listed = self._listed(tenant)
        return "; ".join(filter(None, [listed.problem, listed.listing.problem if listed.listing else ""]))

    def why(self, tool: Tool, tenant: str) -> str:
        """Why a tool is not called now, for people; empty when it is."""
        breaker = self._breakers.get(tool.remote)
        return breaker.why(tenant) if breaker else ""

    async def call(
        self, tool: Tool, arguments: str, tenant: Tenant, score: int, within_s: float, span: Span, waited: Waited
    ) -> CallOutcome:
        """Call a tool within `within_s`. When cancelled, `waited` says whether the caller has waited for its whole
        time: only then the silence counts against the tool. Raises `ServiceError`; a tool's own failure is a result."""
        place = (tenant.name, self.name, tool.remote, arguments)
        if found := self._reused.get(place):
            return CallOutcome(found, reused=True)
        breaker = self._breaker(tool)
        if not breaker.would_admit(tenant.name):
            raise breaker.refusal(tenant.name)
        deadline = Deadline.after(within_s, self._clock)
        slot, permit = await self._limiter.enter(SlotRequest(score, tenant.name, tenant.weight, deadline)), None
        try:
            permit = self._permit(tool, tenant.name)
            outcome = await self._attempts(tool, arguments, tenant.name, deadline, span, waited, permit)
        finally:
            slot.release(unused=permit is None)
        if (reusable_ms := tool.description.reusable_ms) and not outcome.result.failed:
            self._reused.put(place, outcome.result, reusable_ms / 1000)
        return outcome

    async def _attempts(
        self,
        tool: Tool,
        arguments: str,
        tenant: str,
        deadline: Deadline,
        span: Span,
        waited: Waited,
        permit: TenantAwarePermit,
    ) -> CallOutcome:
        key = self._make_key()

        def call() -> CallAttempt:
            return CallAttempt(tool.remote, arguments, key, tenant, deadline.remaining(), span)

        self._retry.count_request()
        try:
            return CallOutcome(await self._attempt(call(), permit, waited))
        except ServiceError as error:
            again = tool.description.idempotent and self._breaker(tool).would_admit(tenant)
            pause_s = self._retry.pause_s(error, deadline.remaining()) if again else None
            if pause_s is None:
                raise
            permit, why = await self._after(pause_s, tool, tenant), error.outline
        return CallOutcome(await self._attempt(call(), permit, waited), retried=why)

    async def _after(self, pause_s: float, tool: Tool, tenant: str) -> TenantAwarePermit:
        """Leave for a retry that is paid for. Where there is none, or its caller has left, the price goes back."""
        try:
            await asyncio.sleep(pause_s)
            return self._permit(tool, tenant)
        except BaseException:
            self._retry.refund()
            raise

    def _permit(self, tool: Tool, tenant: str) -> TenantAwarePermit:
        breaker = self._breaker(tool)
        permit = breaker.enter(tenant)
        if permit is None:
            raise breaker.refusal(tenant)
        return permit

    async def _attempt(self, call: CallAttempt, permit: TenantAwarePermit, waited: Waited) -> tool_pb2.CallToolResponse:
        try:
            result = await self.source.call(call)
            permit.replied()
            return result
        except ServiceError as error:
            permit.ended(error)
            raise
        except asyncio.CancelledError:
            if waited():
                permit.abandoned()
            raise
        finally:
            permit.withdrawn()  # unless it has reported: an earlier cancel is no sample

    async def run(self) -> None:
        """Keep connected, and list the tools before the first request, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.source.run())
                if not self.source.per_tenant:
                    group.create_task(self._keep_listed())
        finally:
            for listed in self._lists.values():
                if listed.asking:
                    listed.asking.cancel()

    async def _keep_listed(self) -> None:
        while True:
            listing = await self.listing("", self._settings.tools.list_ms / 1000, missing=True)
            await asyncio.sleep(_AGAIN_S if listing is None else self._settings.tools.refresh_ms / 1000)

    async def _ask(self, tenant: str, listed: _Listed) -> None:
        listed.asked_at = self._clock()
        try:
            found = await self.source.list(tenant, self._settings.tools.list_ms / 1000)
            listed.listing, listed.listed_at, listed.problem = listed.checker.check(found), self._clock(), ""
        except ServiceError as error:
            listed.problem = error.message
            _log.info("tools of %s: not listed: %s", self.name, error.message)
        except Exception:  # the last list counts, whatever is wrong here
            listed.problem = "a fault of this gateway; its log says which"
            _log.exception("tools of %s: not listed", self.name)
        finally:
            listed.asking = None

    def _listed(self, tenant: str) -> _Listed:
        key = tenant if self.source.per_tenant else ""
        listed = self._lists.pop(key, None)
        if listed is None:
            if len(self._lists) >= _MOST_TENANTS:
                del self._lists[next(iter(self._lists))]
            settings = self._settings
            listed = _Listed(Checker(self.name, self.own, settings.tools, settings.response_format))
        self._lists[key] = listed  # the least recently used comes first
        return listed

    def _breaker(self, tool: Tool) -> TenantAwareBreaker:
        if tool.remote not in self._breakers:
            if len(self._breakers) >= _MOST_BREAKERS:
                self._breakers.pop(next(iter(self._breakers))).forget()
            usual = LatencyBaseline(self._settings.expected.tool_ms / 1000, self._clock)
            name = f"tool {self.name}/{tool.remote}"
            self._breakers[tool.remote] = make_breaker(self._settings.breakers, name, usual, self._clock, tool.name)
        return self._breakers[tool.remote]
