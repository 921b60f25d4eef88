"""The ledger of one answer: budget and time of each stage, what went wrong, and the final event made from it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from opentelemetry.trace import Span

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.answer import metrics
from services.gateway.answer.metrics import HITS, OUTCOMES, REASONS, VERDICTS, Targets
from services.gateway.answer.output import Output
from services.gateway.answer.plan import Plan
from services.gateway.answer.results import Done
from services.gateway.decisions import Changed, Changes, Decisions, TimeLimit, describe
from services.gateway.labels import Act
from services.gateway.policies.slot import Shed
from services.runtime import telemetry
from services.runtime.deadline import Clock
from services.runtime.errors import ServiceError

_log = logging.getLogger(__name__)
_LEAST_S = 0.001  # less time is too short for a call


@dataclass(slots=True)
class Running:
    """A stage under way, which `started` that many seconds into the answer and has `budget_s` from then on. The stage
    sets `outcome` and `detail`."""

    name: str
    budget_s: float
    span: Span
    started: float
    outcome: pb.StageOutcome = pb.STAGE_OUTCOME_OK
    detail: str = ""


@dataclass(slots=True)
class Ledger:
    """Opened when a request is admitted. `reserve_s` of the budget is kept for the last event: `final`, into which
    stages write the outcome, and `close` the rest. `awaited`: whether a client waits for it, as for no item of a batch
    and no answer in the background, whose times are no latencies."""

    plan: Plan
    span: Span
    reserve_s: float
    targets: Targets = field(default_factory=Targets)
    clock: Clock = time.monotonic
    awaited: bool = True
    final: pb.Final = field(default_factory=pb.Final)
    billed_tokens: int = 0  # prompt and completion, charged to the tenant's quota
    total_s: float = 0.0
    on_stage_end: Callable[[pb.Stage], None] = lambda _: None  # called with each stage when it has ended
    _traced: bool = False
    written: Output = field(init=False)
    opened: float = field(init=False)
    decisions: Decisions = field(init=False)
    changes: Changes = field(default_factory=Changes)

    def __post_init__(self) -> None:
        self.opened, self.decisions = self.clock(), Decisions(self.clock)
        self.written = Output(self.clock, self.final.logprobs)

    @property
    def ttft_s(self) -> float | None:
        """Seconds from admission to the first text, thought or call; None where there is none."""
        return self._since_opened(self.written.first_at)

    @property
    def usable_s(self) -> float | None:
        """Seconds to the first usable text; None without one."""
        return self._since_opened(self.written.usable_at)

    def _since_opened(self, moment: float | None) -> float | None:
        return None if moment is None else moment - self.opened

    def elapsed(self) -> float:
        """Seconds since the request was admitted."""
        return self.clock() - self.opened

    def remaining(self) -> float:
        """Seconds that stages may still use."""
        return max(0.0, self.plan.budget_ms / 1000 - self.reserve_s - self.elapsed())

    def left_s(self, stage: Running) -> float:
        """Seconds that a stage under way may still use."""
        return max(0.0, stage.started + stage.budget_s - self.elapsed())

    def decide(self, act: Act, subject: str, reason: str) -> None:
        """Record a decision of a policy."""
        self.decisions.add(act, subject, reason)
        self.changes.take(act, reason)

    def degrade(self, reason: str) -> None:
        """Record why the answer is degraded."""
        if reason not in self.final.degraded:
            self.final.degraded.append(reason)

    def worth_starting(self, name: str, stage: Running) -> bool:
        """Whether an optional stage has time for a call; a call that ends before it begins is only a cost."""
        if stage.budget_s >= _LEAST_S:
            return True
        stage.outcome, stage.detail = pb.STAGE_OUTCOME_SKIPPED, f"a budget of {stage.budget_s * 1000:.2f} ms"
        self.decide(Act.BUDGET_SKIPPED, name, stage.detail)
        return False

    def stage(self, name: str) -> AbstractContextManager[Running]:
        """Run a stage inside. It begins at once."""
        return self.ending(self.begin(name))

    def begin(self, name: str) -> Running:
        """Begin a stage. Its budget is its planned slice plus the unused time of earlier stages, within its latest
        end."""
        planned, started = self.plan[name], self.elapsed()
        unused = max(0.0, planned.starts_ms / 1000 - started)
        left = min(self.remaining(), max(0.0, planned.ends_ms / 1000 - started))
        budget = min(planned.budget_ms / 1000 + unused, planned.stage.cap_ms / 1000, left)
        return Running(name, budget, telemetry.start_span(name, parent=self.span), started)

    @contextmanager
    def ending(self, running: Running) -> Iterator[Running]:
        """Run the rest of a begun stage inside."""
        try:
            yield running
        except BaseException as error:
            running.outcome, running.detail = pb.STAGE_OUTCOME_FAILED, running.detail or type(error).__name__
            raise
        finally:
            self.end(running)

    def end(self, running: Running) -> None:
        name, spent = running.name, self.elapsed() - running.started
        if running.span.is_recording():
            running.span.set_attributes(
                {
                    "hedgerow.stage.budget_ms": running.budget_s * 1000,
                    "hedgerow.stage.spent_ms": spent * 1000,
                    "hedgerow.stage.outcome": OUTCOMES[running.outcome],
                    "hedgerow.stage.detail": running.detail,
                }
            )
            running.span.end()
        if running.outcome == pb.STAGE_OUTCOME_OVERRUN:
            _log.warning("stage %s broke its budget of %.0f ms: %s", name, running.budget_s * 1000, running.detail)
        ended = pb.Stage(
            name=name,
            budget_ms=running.budget_s * 1000,
            spent_ms=spent * 1000,
            started_ms=running.started * 1000,
            outcome=running.outcome,
            detail=running.detail,
        )
        self.final.stages.append(ended)
        self.on_stage_end(ended)

    def accepted(self) -> pb.Accepted:
        """The first event, which carries the plan."""
        plan = [
            pb.PlannedStage(
                name=planned.stage.name,
                budget_ms=planned.budget_ms,
                required=planned.stage.required,
                after=planned.stage.after,
            )
            for planned in self.plan.slices
        ]
        return pb.Accepted(trace_id=telemetry.trace_id(self.span), budget_ms=self.plan.budget_ms, plan=plan)

    def close(self, done: Done) -> pb.Final:
        final, written, self.total_s = self.final, self.written, self.elapsed()
        final.model, final.finish_reason = done.model, done.reason
        final.usage.CopyFrom(done.usage)
        final.usage.completion_tokens = final.usage.completion_tokens or written.tokens
        written.close()
        self._compare_with_targets()
        if final.HasField("prompt"):
            self._close_prompt(final.prompt)
        self.changes.add_media(len(final.sights.pictures), final.transcript)
        final.text = written.whole_text
        final.tool_calls.extend(written.calls)
        final.reasoning = "".join(written.reasoning)
        final.trace_id, final.budget_ms = telemetry.trace_id(self.span), self.plan.budget_ms
        final.total_ms = self.total_s * 1000
        if self.ttft_s is not None:
            final.ttft_ms = self.ttft_s * 1000
        if self.usable_s is not None:
            final.usable_ms = self.usable_s * 1000
        final.decisions.extend(pb.Decision(**made) for made in self.decisions.to_dicts(self.opened))
        final.changes.extend(self.changes)
        if cut := self.changes.cut(
            done.reason, self._time_limit(), final.usage.completion_tokens, stored=final.cache.verdict in HITS
        ):
            final.cut.CopyFrom(cut)
        return final

    def _time_limit(self) -> TimeLimit:
        """The limit of time that has ended an answer: the nearer one, as a call may end a little before its deadline or
        after it."""
        budget_ms, first_ms, now_ms = self.plan.budget_ms, self.plan.first_text_ms, self.elapsed() * 1000
        if abs(now_ms - first_ms) < abs(budget_ms - self.reserve_s * 1000 - now_ms):
            return TimeLimit(Changed.FIRST_TOKEN, first_ms)
        return TimeLimit(Changed.BUDGET, budget_ms)

    def _close_prompt(self, report: pb.PromptReport) -> None:
        """Set the token count before compression. Where it was not counted, it is the count that the engine reports."""
        report.tokens_after = self.final.usage.prompt_tokens
        report.estimated = report.estimated or not (report.tokens_before and report.tokens_after)
        report.tokens_before = report.tokens_before or report.tokens_after
        self.changes.add_prompt(report)

    def failed(self, error: ServiceError) -> None:
        """End without an answer: the error has the reason."""
        if not self.total_s:  # else its stages are counted with the answer
            metrics.observe_stages(self.final.stages)
        if isinstance(error, Shed):
            self.decide(Act.SHED_REFUSED, error.metadata.get("why", ""), error.outline)
        self.decisions.explain(error, self.opened, telemetry.trace_id(self.span))
        self._trace_decisions()

    def dropped(self) -> None:
        """Record that the client has left; ignored after the last event."""
        if self.total_s:
            return
        progress = "in text" if self.written.begun else "before text" if self.final.stages else "before any stage"
        metrics.DROPPED.labels(progress).inc()
        self.span.set_attribute("hedgerow.dropped", progress)
        self._trace_decisions()

    def publish(self, final: pb.Final) -> None:
        """Publish metrics and the span; after `close`, when the client has the answer."""
        metrics.observe(final, awaited=self.awaited)
        if self.span.is_recording():
            self.span.set_attributes(
                {
                    "hedgerow.budget_ms": self.plan.budget_ms,
                    "hedgerow.total_ms": self.total_s * 1000,
                    "hedgerow.ttft_ms": -1.0 if self.ttft_s is None else self.ttft_s * 1000,
                    "hedgerow.usable_ms": -1.0 if self.usable_s is None else self.usable_s * 1000,
                    "hedgerow.model": final.model,
                    "hedgerow.finish_reason": REASONS[final.finish_reason],
                    "hedgerow.cache.verdict": VERDICTS[final.cache.verdict],
                    "hedgerow.degraded": list(final.degraded),
                    "hedgerow.changes": [describe(change) for change in self.changes],
                    "hedgerow.cut": describe(final.cut) if final.HasField("cut") else "",
                }
            )
            self._trace_decisions()

    def _trace_decisions(self) -> None:
        """Add each decision as an event to the request's span, at its time, and once: an answer that ends with an error
        may have had its last event before."""
        if self._traced or not self.span.is_recording():
            return
        self._traced = True
        now, now_ns = self.clock(), time.time_ns()
        for made in self.decisions:
            attributes = {
                "hedgerow.decision.action": made.action,
                "hedgerow.decision.subject": made.subject,
                "hedgerow.decision.reason": made.reason,
            }
            if made.address:
                attributes["hedgerow.decision.address"] = made.address
            self.span.add_event(f"hedgerow.{made.policy}", attributes, now_ns - int((now - made.at) * 1e9))

    def _compare_with_targets(self) -> None:
        if not (self.targets and self.awaited):
            return
        spent_ms = {stage.name: stage.spent_ms for stage in self.final.stages} | {"total": self.total_s * 1000}
        if self.ttft_s is not None:
            spent_ms["ttft"] = self.ttft_s * 1000
        if self.usable_s is not None:
            spent_ms["usable"] = self.usable_s * 1000
        for name, percentile, text in self.targets.count_missed(spent_ms):
            self.decide(Act[f"TARGET_MISSED_{percentile.upper()}"], name, text)
