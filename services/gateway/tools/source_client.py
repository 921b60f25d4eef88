"""A client of one source of tools: its lists of tools, its limiter, a breaker for each tool, and reusable results."""

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
from services.gateway.policies.concurrency_limit import FixedLimit
from services.gateway.policies.limiter import Limiter
from services.gateway.policies.retry import RetryBudget
from services.gateway.policies.slot import SlotRequest
from services.gateway.policies.tenant_aware_breaker import TenantAwareBreaker, TenantAwarePermit
from services.gateway.tools.listing import Checker, ListedTool, Listing
from services.gateway.tools.source import CallAttempt, ToolSource
from services.gateway.upstream.replica import make_breaker
from services.runtime.deadline import Clock, Deadline
from services.runtime.errors import ServiceError
from services.runtime.policy.fair_lru import FairLru

_RESULT_OVERHEAD_BYTES = 600  # memory of a cached result beside its message's fields
_ResultKey = tuple[str, str, str, str]  # tenant, source, tool, arguments
_log = logging.getLogger(__name__)
_MOST_TENANTS = 1_000  # with a list, where each tenant has its own
_MOST_BREAKERS = 1_000
_RELIST_AFTER_S = 1.0  # between tries, after a list that failed or lacks the wanted tool
_MOST_WAITING = 1_000  # calls of one source
WaitedToEnd = Callable[[], bool]  # whether the caller of a cancelled call had waited for its whole time


@dataclass(frozen=True, slots=True, eq=False)
class _CachedResult:
    tenant: str
    result: tool_pb2.CallToolResponse
    size: int
    until: float


class ResultCache:
    """Results for equal tenant, tool and arguments, for as long as the tool's `reusable_ms`. They take at most
    `max_bytes`, which tenants share fairly."""

    def __init__(self, max_bytes: int, clock: Clock = time.monotonic):
        self._results: FairLru[_ResultKey, _CachedResult] = FairLru(max_bytes)
        self._clock = clock

    def get(self, key: _ResultKey) -> tool_pb2.CallToolResponse | None:
        cached = self._results.get(key)
        if cached is None:
            return None
        if cached.until <= self._clock():
            self._results.pop(key)
            return None
        self._results.use(key)
        return cached.result

    def put(self, key: _ResultKey, result: tool_pb2.CallToolResponse, for_s: float) -> None:
        size = result.ByteSize() + sum(map(len, key)) + _RESULT_OVERHEAD_BYTES
        self._results.replace(key, _CachedResult(key[0], result, size, self._clock() + for_s))


@dataclass(slots=True)
class _ListState:
    """The last list of a source. `tried_at` moves with each try, `listed_at` with each success."""

    checker: Checker
    listing: Listing | None = None
    listed_at: float = float("-inf")
    tried_at: float = float("-inf")
    problem: str = ""
    refresh: asyncio.Task[None] | None = None


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """The outcome of a call. `retried`: why it was made twice."""

    result: tool_pb2.CallToolResponse
    reused: bool = False
    retried: str = ""


class SourceClient:
    def __init__(
        self,
        name: str,
        source: ToolSource,
        settings: GatewaySettings,
        results: ResultCache,
        retry: RetryBudget,
        clock: Clock = time.monotonic,
        make_key: Callable[[], str] = lambda: uuid.uuid4().hex,
    ):
        self.name, self.source, self._settings, self._clock = name, source, settings, clock
        self.source_settings = settings.tools.sources[name]
        self._results, self._retry, self._make_key = results, retry, make_key
        self._lists: dict[str, _ListState] = {}
        self._breakers: dict[str, TenantAwareBreaker] = {}
        self._limiter = Limiter(
            f"tools {name}",
            FixedLimit(self.source_settings.concurrency),
            _MOST_WAITING,
            self.source_settings.queue_ms / 1000,
            clock=clock,
        )

    async def listing(self, tenant: str, within_s: float, missing: bool = False) -> Listing | None:
        """The source's list for a tenant; None where there never was one. An old list is renewed in the background.
        A first one, or one of which something is `missing`, is waited for, but not while the source is down."""
        listed, now = self._list_state(tenant), self._clock()
        refresh_s = self._settings.tools.refresh_ms / 1000
        stale = now - listed.listed_at >= refresh_s or missing
        if stale and not listed.refresh and now - listed.tried_at >= _RELIST_AFTER_S:
            listed.refresh = asyncio.create_task(self._refresh(tenant, listed))
        if listed.refresh and not listed.problem and (listed.listing is None or missing):
            await asyncio.wait({listed.refresh}, timeout=within_s)
        return listed.listing

    def listed(self, tenant: str) -> Listing | None:
        """The last list; None where there never was one."""
        return self._list_state(tenant).listing

    def problem(self, tenant: str) -> str:
        """The problem of the source or its list, for people."""
        listed = self._list_state(tenant)
        return "; ".join(filter(None, [listed.problem, listed.listing.problem if listed.listing else ""]))

    def why(self, tool: ListedTool, tenant: str) -> str:
        """Why a tool is not called now, for people; empty when it is."""
        breaker = self._breakers.get(tool.remote)
        return breaker.why(tenant) if breaker else ""

    async def call(
        self,
        tool: ListedTool,
        arguments: str,
        tenant: Tenant,
        score: int,
        within_s: float,
        span: Span,
        waited: WaitedToEnd,
    ) -> CallOutcome:
        """Call a tool within `within_s` seconds, as `score` orders waiting calls. A cancelled call counts as a failure
        of the tool only if `waited()`. Raises `ServiceError`; a tool's own failure is a result."""
        key = (tenant.name, self.name, tool.remote, arguments)
        if found := self._results.get(key):
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
            self._results.put(key, outcome.result, reusable_ms / 1000)
        return outcome

    async def _attempts(
        self,
        tool: ListedTool,
        arguments: str,
        tenant: str,
        deadline: Deadline,
        span: Span,
        waited: WaitedToEnd,
        permit: TenantAwarePermit,
    ) -> CallOutcome:
        key = self._make_key()

        def call() -> CallAttempt:
            return CallAttempt(tool.remote, arguments, key, tenant, deadline.remaining(), span)

        self._retry.count_request(tenant)
        try:
            return CallOutcome(await self._attempt(call(), permit, waited))
        except ServiceError as error:
            again = tool.description.idempotent and self._breaker(tool).would_admit(tenant)
            pause_s = self._retry.pause_s(error, deadline.remaining(), tenant) if again else None
            if pause_s is None:
                raise
            permit, why = await self._permit_for_retry(pause_s, tool, tenant), error.outline
        return CallOutcome(await self._attempt(call(), permit, waited), retried=why)

    async def _permit_for_retry(self, pause_s: float, tool: ListedTool, tenant: str) -> TenantAwarePermit:
        """The breaker's permit for a retry, after a pause. The retry budget was charged; without a permit, and where
        the caller has left, the charge is refunded."""
        try:
            await asyncio.sleep(pause_s)
            return self._permit(tool, tenant)
        except BaseException:
            self._retry.refund(tenant)
            raise

    def _permit(self, tool: ListedTool, tenant: str) -> TenantAwarePermit:
        breaker = self._breaker(tool)
        permit = breaker.enter(tenant)
        if permit is None:
            raise breaker.refusal(tenant)
        return permit

    async def _attempt(
        self, call: CallAttempt, permit: TenantAwarePermit, waited: WaitedToEnd
    ) -> tool_pb2.CallToolResponse:
        with permit:
            try:
                return await self.source.call(call)
            except asyncio.CancelledError:
                if waited():  # an early cancel is no sample
                    permit.abandoned()
                raise

    async def run(self) -> None:
        """Keep connected, and list the tools before the first request, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.source.run())
                if not self.source.per_tenant:
                    group.create_task(self._keep_listed())
        finally:
            for listed in self._lists.values():
                if listed.refresh:
                    listed.refresh.cancel()

    async def _keep_listed(self) -> None:
        while True:
            listing = await self.listing("", self._settings.tools.list_ms / 1000, missing=True)
            await asyncio.sleep(_RELIST_AFTER_S if listing is None else self._settings.tools.refresh_ms / 1000)

    async def _refresh(self, tenant: str, listed: _ListState) -> None:
        listed.tried_at = self._clock()
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
            listed.refresh = None

    def _list_state(self, tenant: str) -> _ListState:
        key = tenant if self.source.per_tenant else ""
        listed = self._lists.pop(key, None)
        if listed is None:
            if len(self._lists) >= _MOST_TENANTS:
                del self._lists[next(iter(self._lists))]
            settings = self._settings
            listed = _ListState(Checker(self.name, self.source_settings, settings.tools, settings.response_format))
        self._lists[key] = listed  # the least recently used comes first
        return listed

    def _breaker(self, tool: ListedTool) -> TenantAwareBreaker:
        if tool.remote not in self._breakers:
            if len(self._breakers) >= _MOST_BREAKERS:
                self._breakers.pop(next(iter(self._breakers))).forget()
            baseline = LatencyBaseline(self._settings.expected.tool_ms / 1000, self._clock)
            name = f"tool {self.name}/{tool.remote}"
            self._breakers[tool.remote] = make_breaker(self._settings.breakers, name, baseline, self._clock, tool.name)
        return self._breakers[tool.remote]
