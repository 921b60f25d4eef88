"""The call of a mesh tool for an answer, and the guard of its result before a model or a client reads it.

Each call has a stage of its own in the report, `tool:<name>`, a span below that of its stage, and a decision unless it
simply succeeds. A late call continues: its result may still come as a patch.

The text of a result is not trusted. The guard is that of the tenant, as for the question: names take the place of
secrets and personal data, the same as in the prompt. A result with a refused finding is withheld as a whole, and the
model gets a note that there is none. The guard of a result has a slice of its own, within the time for which the answer
waits for the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TypeVar

from opentelemetry.trace import Span
from prometheus_client import Counter, Histogram

from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.tool.v1 import tool_pb2
from services.gateway.answer.context import RequestContext
from services.gateway.answer.ledger import Running
from services.gateway.answer.stream_filter import counted
from services.gateway.guard.checks import Checks
from services.gateway.guard.screen import ContentScanner, Late, RefusedText, describe_injection
from services.gateway.labels import Act, Degraded, ToolOutcome
from services.gateway.policies.slot import score
from services.gateway.tools.listing import ListedTool, cut
from services.gateway.tools.source_client import CallOutcome
from services.gateway.tools.toolbox import RequestTools
from services.runtime import telemetry
from services.runtime.aside import give_way
from services.runtime.deadline import Deadline
from services.runtime.errors import ServiceError
from services.runtime.futures import retrieve

T = TypeVar("T")
_MOST_CITATIONS, _CITATION_BYTES = 20, 2_048  # of one result, and of each text in them
_CALLS = Counter("hedgerow_tool_calls", "Calls of tools.", ["source", "outcome"])
_SECONDS = Histogram(
    "hedgerow_tool_seconds",
    "Time for which an answer waited for a call of a tool.",
    ["source"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, *telemetry.LONG_S),
)
_calls, _seconds = cache(_CALLS.labels), cache(_SECONDS.labels)
_OUTCOMES = {
    ToolOutcome.OK: pb.STAGE_OUTCOME_OK,
    ToolOutcome.REUSED: pb.STAGE_OUTCOME_OK,
    ToolOutcome.FAILED: pb.STAGE_OUTCOME_FAILED,
    ToolOutcome.LATE: pb.STAGE_OUTCOME_OVERRUN,
    ToolOutcome.UNAVAILABLE: pb.STAGE_OUTCOME_FAILED,
    ToolOutcome.WITHHELD: pb.STAGE_OUTCOME_FAILED,
}
_ACTS = {
    ToolOutcome.REUSED: Act.TOOL_REUSED,
    ToolOutcome.FAILED: Act.TOOL_FAILED,
    ToolOutcome.LATE: Act.TOOL_LATE,
    ToolOutcome.UNAVAILABLE: Act.TOOL_UNAVAILABLE,
}


@dataclass(frozen=True, slots=True)
class ReadableResult:
    """The readable part of a result. `withheld`: why it is empty, for people."""

    content: str = ""
    citations: Sequence[tool_pb2.Citation] = ()
    withheld: str = ""


async def guarded_result(
    context: RequestContext, name: str, content: str, citations: Sequence[tool_pb2.Citation]
) -> ReadableResult:
    """The result of the tool `name` as its readers get it."""
    checks, ledger = context.privacy.checks, context.ledger
    if checks is None or not checks.asks:
        return ReadableResult(content, citations)
    within_s = ledger.plan["guard"].budget_ms / 1000
    looking = ContentScanner(checks, context.privacy.names, Deadline.after(within_s, ledger.clock))
    try:
        seen = await _stepped(
            _scan_result(context, name, looking, checks, ReadableResult(content, citations)), context.tenant.name
        )
    except RefusedText as refused:
        ledger.decide(Act.GUARD_REFUSED, name, refused.rule)
        return ReadableResult(withheld=f"it holds {refused.what}")
    except Late:
        is_open = checks.settings.late == "open"
        late = f"not done within {within_s * 1000:.0f} ms"
        ledger.decide(Act.GUARD_LATE, name, f"{late}: {'passed' if is_open else 'withheld'}")
        if not is_open:
            return ReadableResult(withheld=f"the guard was {late}")
        ledger.degrade(Degraded.GUARD_LATE)
        return ReadableResult(content, citations)
    if looking.found:
        ledger.decide(Act.GUARD_MASKED_INPUT, name, counted(looking.found))
    return seen


def _scan_result(
    context: RequestContext, name: str, looking: ContentScanner, checks: Checks, came: ReadableResult
) -> Generator[None, None, ReadableResult]:
    """The steps of the guard. Raises `RefusedText` and `Late`."""
    shown = came
    if checks.masks:
        content = yield from looking.without_private(came.content)
        citations = list[tool_pb2.Citation]()
        for each in came.citations:
            source, title, text = yield from _all(looking, (each.source, each.title, each.text))
            citations.append(tool_pb2.Citation(source=source, title=title, text=text, score=each.score))
        shown = ReadableResult(content, citations)
    if checks.settings.injection != "off":
        said = (came.content, *(text for each in came.citations for text in (each.title, each.text)))
        rule, score = yield from looking.for_injections(dict.fromkeys(said))
        if rule and checks.settings.injection == "refuse":
            raise RefusedText(rule, f"what looks like a prompt injection ({rule})")
        if rule:
            context.ledger.decide(Act.GUARD_NOTED, name, describe_injection(rule, score))
    return shown


def _all(looking: ContentScanner, texts: Sequence[str]) -> Generator[None, None, list[str]]:
    shown = list[str]()
    for text in texts:
        shown.append((yield from looking.without_private(text)))
    return shown


async def _stepped(steps: Generator[None, None, T], tenant: str) -> T:
    """The result of the steps of a tenant's, between which the event loop runs."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            return ended.value  # type: ignore[no-any-return]
        await give_way(tenant)


@dataclass(slots=True)
class ToolRun:
    """A call under way. `text` is the text of its result for a model."""

    context: RequestContext
    tool: ListedTool
    running: Running
    task: asyncio.Task[tuple[CallOutcome, ReadableResult]]
    outcome: ToolOutcome = ToolOutcome.LATE
    text: str = field(default="", init=False)
    waited: bool = field(default=False, init=False)  # whether the answer has, for as long as it meant to

    @property
    def name(self) -> str:
        return self.tool.name

    async def end(self) -> None:
        """Wait for the call, within its time."""
        await asyncio.wait({self.task}, timeout=self.running.budget_s)
        if not self.task.done():
            self.waited = True
            self._close(ToolOutcome.LATE, f"not within its {self.running.budget_s * 1000:.0f} ms")
            self.text = f"{self.name} has not answered in time."
            self.context.mark_incomplete(Degraded.TOOLS_BUDGET)
            return
        try:
            self._take(*self.task.result())
        except ServiceError as error:
            self._close(ToolOutcome.UNAVAILABLE, error.outline)
            self.text = f"{self.name} could not be reached."
            self.context.mark_incomplete(Degraded.TOOLS_UNAVAILABLE)

    def patch(self) -> pb.Patch | None:
        """The result that came too late for the answer; once."""
        if self.outcome is not ToolOutcome.LATE or not self.task.done() or self.task.cancelled():
            return None
        self.outcome = ToolOutcome.FAILED
        if self.task.exception():
            return None
        call_outcome, seen = self.task.result()
        if call_outcome.result.failed or seen.withheld:
            return None
        self.outcome = ToolOutcome.OK
        self.context.take_citations(self.name, seen.citations)
        return pb.Patch(stage=self.running.name, text=seen.content)

    def leave(self) -> None:
        """Cancel the call: the answer is over. Where its client has left meanwhile, the span of the call ends here."""
        self.task.cancel()
        if (span := self.running.span).is_recording():
            span.set_attribute("hedgerow.dropped", "in a call")
            span.end()

    def _take(self, call_outcome: CallOutcome, seen: ReadableResult) -> None:
        result, ledger = call_outcome.result, self.context.ledger
        if call_outcome.retried:
            ledger.decide(Act.TOOL_RETRIED, self.name, call_outcome.retried)
        if seen.withheld:
            self._close(ToolOutcome.WITHHELD, seen.withheld)
            self.text = f"The result of {self.name} is withheld by the guard."
            self.context.mark_incomplete(Degraded.GUARD_WITHHELD)
            return
        if result.failed:
            self._close(ToolOutcome.FAILED, "it reported an error")
            self.text = f"{self.name} failed: {seen.content}"
            self.context.mark_incomplete(Degraded.TOOLS_UNAVAILABLE)
            return
        detail = f"{len(result.content.encode())} bytes"
        detail += f", {len(result.citations)} citations" if result.citations else ""
        self._close(ToolOutcome.REUSED if call_outcome.reused else ToolOutcome.OK, detail)
        self.text = seen.content
        self.context.take_citations(self.name, seen.citations)

    def _close(self, outcome: ToolOutcome, detail: str) -> None:
        ledger, running = self.context.ledger, self.running
        self.outcome, running.outcome, running.detail = outcome, _OUTCOMES[outcome], detail
        if outcome is ToolOutcome.REUSED:
            running.detail = f"reused, {detail}"
        ledger.end(running)
        _calls(self.tool.source, outcome).inc()
        _seconds(self.tool.source).observe(ledger.elapsed() - running.started)
        if act := _ACTS.get(outcome):
            ledger.decide(act, self.name, detail)


def begin(
    context: RequestContext, request_tools: RequestTools, tool: ListedTool, arguments: str, within_s: float, above: Span
) -> ToolRun:
    """Call a tool for an answer, which waits for it `within_s` at the most; the call may go on until the answer ends.
    `above`: the span of the stage that calls."""
    client, ledger, request = request_tools.toolbox.client_of(tool), context.ledger, context.question.request
    name = f"tool:{tool.name}"
    span = telemetry.start_span(name, parent=above)
    running = Running(name, min(within_s, client.source_settings.call_ms / 1000), span, ledger.elapsed())
    rank = score(premium=context.tenant.premium, realtime=request.realtime, attempt=request.attempt)

    async def call() -> tuple[CallOutcome, ReadableResult]:
        remaining_s = ledger.remaining()
        call_outcome = await client.call(tool, arguments, context.tenant, rank, remaining_s, span, lambda: run.waited)
        content = _within(context, request_tools, tool.name, call_outcome.result.content)
        citations = _bounded(call_outcome.result.citations)
        return call_outcome, await guarded_result(context, tool.name, content, citations)

    task = asyncio.create_task(call(), context=telemetry.within(span))
    task.add_done_callback(retrieve)
    run = ToolRun(context, tool, running, task)
    return run


def _within(context: RequestContext, request_tools: RequestTools, name: str, content: str) -> str:
    """The part of a result that is read."""
    most = min(request_tools.toolbox.settings.max_result_bytes, _share_bytes(context, request_tools))
    short = cut(content, most)
    if short == content:
        return content
    size = len(content.encode())
    context.ledger.decide(Act.TOOL_CUT, name, f"at most {most} bytes, got {size}")
    return f"{short}\n[cut here: {most} of {size} bytes]"


def _bounded(citations: Sequence[tool_pb2.Citation]) -> list[tool_pb2.Citation]:
    """The citations as events for a client."""
    return [
        tool_pb2.Citation(
            source=cut(each.source, _CITATION_BYTES),
            title=cut(each.title, _CITATION_BYTES),
            text=cut(each.text, _CITATION_BYTES),
            score=each.score,
        )
        for each in citations[:_MOST_CITATIONS]
    ]


def _share_bytes(context: RequestContext, request_tools: RequestTools) -> int:
    """The bytes of a model's context for one result: all results together have half of it, at 2 bytes a token to be
    sure."""
    tokens = context.backends.routes.least_context
    if not tokens:
        return 1 << 30
    return max(tokens // (len(request_tools.beforehand) + request_tools.max_calls * bool(request_tools.offered)), 64)
