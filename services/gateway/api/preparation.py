"""The one way from a request to its answer: it is checked, admitted, and given a plan for its budget.

    check     limits, fields, the tenant's policies -> CheckedRequest
    admit     load, then the tenant's quota         -> AdmittedRequest
    answer    mesh tools, a plan, a ledger          -> AnswerRunner

`prepare_answer` does all three, for a call and for a turn of a conversation. An item of a batch waits for its turn
after the checks. `answer_again` answers a question that was checked before, after a stale hit.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TypeVar

from opentelemetry.trace import Span

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.control import SIZE_S, AdmissionControl
from services.gateway.admission.effective import Budget, budget_of, note_asked, with_token_limit
from services.gateway.admission.identity import Tenant
from services.gateway.admission.question import Question
from services.gateway.admission.quota import REQUEST, TURN, Claim, JointReservation, QuotaExceeded, Reservation
from services.gateway.admission.validation import validate
from services.gateway.answer.backends import Backends
from services.gateway.answer.context import RequestContext
from services.gateway.answer.ledger import Ledger
from services.gateway.answer.metrics import Targets
from services.gateway.answer.plan import make_plan
from services.gateway.answer.registry import claims, planned
from services.gateway.answer.runner import AnswerRunner
from services.gateway.answer.stages.stage import AnswerStage
from services.gateway.api.revalidation import Revalidation
from services.gateway.config import GatewaySettings
from services.gateway.labels import Act, Degraded
from services.gateway.tools.toolbox import RequestTools
from services.gateway.upstream.media import Media
from services.runtime import telemetry
from services.runtime.aside import aside, size_in, size_of_conversation
from services.runtime.deadline import Deadline

T = TypeVar("T")
_LEAST_MS = 1.0  # of a budget, and of a wait worth a word


@dataclass(frozen=True, slots=True)
class CheckedRequest:
    """A request that its tenant may ask, and its budget, which runs until `deadline`."""

    question: Question
    tenant: Tenant
    budget: Budget
    deadline: Deadline

    @property
    def began(self) -> float:
        """Since when its budget runs, in monotonic seconds."""
        return self.deadline.at - self.budget.ms / 1000


@dataclass(frozen=True, slots=True)
class AdmittedRequest:
    """A request that has a slot: `reservation` is what its tenant's quota holds for it, to be settled at its end.
    `waited_ms`: until then, where it had to wait for its turn."""

    checked: CheckedRequest
    reservation: Reservation | JointReservation
    waited_ms: float = 0


class Preparation:
    """Prepares the requests of one gateway."""

    def __init__(
        self,
        settings: GatewaySettings,
        backends: Backends,
        media: Media,
        admission: AdmissionControl,
        stages: Mapping[str, type[AnswerStage]],
    ):
        self._settings, self._backends, self._media, self._admission = settings, backends, media, admission
        self._targets, self._stages = Targets(settings.targets), stages
        self._revalidation = Revalidation(self.answer_again)
        self._claims = cache(partial(claims, settings.stage_budgets, known=stages))

    def close(self) -> None:
        """End the work that no client waits for."""
        self._revalidation.close()

    async def prepare_answer(
        self,
        request: pb.GenerateRequest,
        tenant: Tenant,
        deadline: Deadline,
        span: Span,
        claim: Claim = REQUEST,
    ) -> AnswerRunner:
        """The answer to a request that is admitted at once, not yet begun."""
        admitted = await self.admit(await self.checked(request, tenant, deadline), span, claim)
        return await self.answer(admitted, span, revalidate=self._revalidation.submit)

    async def answer_again(self, question: Question, tenant: Tenant, span: Span) -> pb.Final:
        """Answer a question that was checked before, in the background: it takes only spare slots, like an item of a
        batch, and none of its tenant's. Raises `Exhausted` where there is no room."""
        budget = budget_of(question.request, tenant, self._settings, Deadline.never())
        checked = CheckedRequest(question, tenant, budget, Deadline.after(budget.ms / 1000))
        return await (await self.answer(await self.admit(checked, span, TURN), span, on_slot=lambda: None)).give()

    async def checked(self, request: pb.GenerateRequest, tenant: Tenant, deadline: Deadline) -> CheckedRequest:
        """Check a request, beside the event loop where it is large: that is a part of its budget. Raises
        `InvalidInput`, `ModelUnknown`, `FieldDenied`, `BudgetSpent` or `TooLate`."""
        budget = budget_of(request, tenant, self._settings, deadline)
        until = Deadline.after(budget.ms / 1000)
        return await self.aside(request, tenant, partial(self._check, request, tenant, budget, until), until)

    def _check(self, request: pb.GenerateRequest, tenant: Tenant, budget: Budget, until: Deadline) -> CheckedRequest:
        request, tokens = with_token_limit(request, tenant)
        question = validate(request, tenant, self._settings, self._media)
        _ = question.unshared  # which looks at every message: here it is beside the event loop, where they are many
        return CheckedRequest(question, tenant, replace(budget, tokens=tokens), until)

    async def aside(
        self, request: pb.GenerateRequest, tenant: Tenant, work: Callable[[], T], until: Deadline | None = None
    ) -> T:
        """The result of `work`, which looks at all of a request, beside the event loop where the request is large.
        Raises `TooLate` for a large one that is not done by `until`."""
        size = max(size_of_conversation(request.messages, request.tools), size_in(request.original.body))
        self._admission.spend(tenant, size * SIZE_S)
        within_s = until.remaining() if until else 0
        return await aside(tenant.name, size, work, within_s or None)  # the check refuses a budget of 0

    async def admit(self, checked: CheckedRequest, span: Span, claim: Claim = REQUEST) -> AdmittedRequest:
        """Admit it at once. Raises `Shed` or `QuotaExceeded`."""
        trace_id, budget_s = telemetry.trace_id(span), checked.budget.ms / 1000
        reservation = await self._admission.admit(checked.question, checked.tenant, trace_id, budget_s, claim)
        return AdmittedRequest(checked, reservation)

    @asynccontextmanager
    async def admitted_together(
        self, checked: Sequence[CheckedRequest], span: Span, paid: int = 0
    ) -> AsyncIterator[Sequence[AdmittedRequest]]:
        """Admit equal requests of one tenant, all of them or none, for as long as the block runs. `paid`: how many
        of these requests the tenant's rate has been charged for; a second attempt is charged again. Raises `Shed` or
        `QuotaExceeded`."""
        first, count = checked[0], len(checked)
        tenant, trace_id, claim = first.tenant, telemetry.trace_id(span), Claim(count - paid, count)
        try:
            whole = await self._admission.admit(
                first.question, tenant, trace_id, first.budget.ms / 1000, claim, answers=count
            )
        except QuotaExceeded as refused:
            if paid and refused.metadata["quota"] == "requests":
                refused.retry_delay_s = (refused.retry_delay_s or 0) + paid / tenant.allowance.requests_per_s
            raise
        joint = JointReservation(whole)
        try:
            yield [AdmittedRequest(each, joint) for each in checked]
        finally:
            joint.end()

    async def admit_in_time(self, checked: CheckedRequest, span: Span) -> AdmittedRequest:
        """Admit it as soon as there is a slot, with the rest of its budget. Raises the last refusal where
        there is none by its deadline."""
        deadline, trace_id = checked.deadline, telemetry.trace_id(span)
        reservation = await self._admission.admit_in_time(checked.question, checked.tenant, trace_id, deadline)
        left_ms = max(deadline.remaining() * 1000, _LEAST_MS)
        left = replace(checked, budget=replace(checked.budget, ms=left_ms), deadline=Deadline.after(left_ms / 1000))
        return AdmittedRequest(left, reservation, waited_ms=checked.budget.ms - left_ms)

    async def answer(
        self,
        admitted: AdmittedRequest,
        span: Span,
        *,
        on_slot: Callable[[], None] | None = None,
        revalidate: Callable[[Question, Tenant, bytes], None] | None = None,
    ) -> AnswerRunner:
        """The answer of an admitted request, not yet begun. `on_slot`, for a background answer, is called when it has
        its slot at a model. `revalidate` is called with the question, its tenant and its key after a stale hit. Raises
        `InvalidInput` for a mesh tool that no source has."""
        question, tenant, reservation = admitted.checked.question, admitted.checked.tenant, admitted.reservation
        try:
            ledger = self._open(admitted.checked, span, awaited=on_slot is None)
            request_tools = await self._resolve_tools(question.request, tenant, ledger)
        except BaseException:
            reservation.settle(0)
            raise
        if admitted.waited_ms > _LEAST_MS:
            ledger.decide(Act.LIMIT_WAITED, "batch", f"{admitted.waited_ms:.0f} ms for its turn")
        if reservation.local_reason:
            ledger.degrade(Degraded.QUOTA_LOCAL)
            ledger.decide(Act.QUOTA_LOCAL, tenant.name, reservation.local_reason)
        resubmit = partial(revalidate, question, tenant) if revalidate else None
        context = RequestContext.open(
            question,
            tenant,
            ledger,
            self._backends,
            on_slot=on_slot,
            revalidate=resubmit,
            request_tools=request_tools,
        )
        return AnswerRunner(context, reservation, self._stages)

    def _open(self, checked: CheckedRequest, span: Span, *, awaited: bool) -> Ledger:
        """The ledger, with a plan for the budget: to be admitted is a part of it."""
        settings, request, budget = self._settings, checked.question.request, checked.budget
        plan = make_plan(
            self._claims(planned(checked.question, checked.tenant, self._backends, self._stages)),
            budget.ms,
            floor_share=settings.floor_share,
            first_text_ms=checked.question.settings.first_text_ms,
        )
        reserve_s = min(settings.finish_reserve_ms, budget.ms / 10) / 1000
        ledger = Ledger(plan, span, reserve_s, self._targets, awaited=awaited)
        ledger.opened = checked.began
        by_default = settings.response_format.check
        note_asked(ledger.changes, request, checked.tenant, budget, plan.first_text_ms, checks_forms=by_default)
        return ledger

    async def _resolve_tools(self, request: pb.GenerateRequest, tenant: Tenant, ledger: Ledger) -> RequestTools | None:
        """The mesh's tools that the request names."""
        if self._backends.tools is None or not request.mesh_tools:
            return None
        return await self._backends.tools.resolve(request, tenant, ledger.remaining())
