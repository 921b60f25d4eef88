"""Protos to events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hedgerow._errors import HedgerowError, error_for
from hedgerow._events import (
    Accepted,
    Answer,
    CacheReport,
    Change,
    Patch,
    PlannedStage,
    PromptReport,
    ReasoningDelta,
    Sights,
    TextDelta,
    Timings,
    TokenLogprob,
    Transcript,
    Usage,
)
from hedgerow._image_labels import Label
from hedgerow._reports import Decision, StageReport
from hedgerow._tools import Citation, Citations, ListedTool, ToolCall, ToolCallDelta, ToolSource
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.vision.v1 import vision_pb2


def _labels(enum: Any, prefix: str) -> dict[int, Any]:
    """`FINISH_REASON_STOP` → `stop`, by number."""
    return {value.number: value.name.removeprefix(prefix).lower() for value in enum.DESCRIPTOR.values}


_FINISH = _labels(chat_pb2.FinishReason, "FINISH_REASON_")
_VERDICT = _labels(pb.CacheVerdict, "CACHE_VERDICT_")
_OUTCOME = _labels(pb.StageOutcome, "STAGE_OUTCOME_")


def accepted(message: pb.Accepted) -> Accepted:
    plan = tuple(PlannedStage(s.name, s.budget_ms, s.required, tuple(s.after)) for s in message.plan)
    return Accepted(message.trace_id, message.budget_ms, plan)


def stage(message: pb.Stage) -> StageReport:
    return StageReport(
        name=message.name,
        budget_ms=message.budget_ms,
        spent_ms=message.spent_ms,
        started_ms=message.started_ms,
        outcome=_OUTCOME.get(message.outcome, "unspecified"),
        detail=message.detail,
    )


def delta(message: pb.TextDelta) -> TextDelta:
    return TextDelta(message.text, message.tokens, _logprobs(message.logprobs))


def reasoning(message: pb.ReasoningDelta) -> ReasoningDelta:
    return ReasoningDelta(message.text, message.tokens)


def tool_call(message: chat_pb2.ToolCallDelta) -> ToolCallDelta:
    return ToolCallDelta(message.index, message.id, message.name, message.arguments)


def patch(message: pb.Patch) -> Patch:
    return Patch(message.stage, message.text, message.replaces)


def citations(message: pb.Citations) -> Citations:
    found = (Citation(each.source, each.title, each.text, each.score) for each in message.citations)
    return Citations(message.tool, tuple(found))


def tools(message: pb.ListToolsResponse) -> tuple[ListedTool, ...]:
    return tuple(
        ListedTool(
            name=each.description.tool.name,
            description=each.description.tool.description,
            parameters=each.description.tool.parameters,
            source=each.source,
            idempotent=each.description.idempotent,
            reusable_ms=each.description.reusable_ms,
            question_argument=each.description.question_argument,
            problem=each.problem,
        )
        for each in message.tools
    )


def tool_sources(message: pb.ListToolsResponse) -> tuple[ToolSource, ...]:
    return tuple(ToolSource(each.name, each.kind, each.problem) for each in message.sources)


def transcript(message: pb.Transcript) -> Transcript:
    return Transcript(message.text, message.confirmed_words, message.final)


def sights(message: pb.Sights) -> Sights:
    return Sights(tuple(map(labels, message.pictures)))


def labels(message: vision_pb2.Labels) -> tuple[Label, ...]:
    return tuple(Label(label.name, label.score, label.index) for label in message.labels)


def answer(message: pb.Final, timings: Timings) -> Answer:
    return Answer(
        text=message.text,
        finish_reason=_FINISH.get(message.finish_reason, "unspecified"),
        model=message.model,
        usage=_usage(message.usage),
        cache=_cache(message.cache),
        degraded=tuple(message.degraded),
        stages=tuple(map(stage, message.stages)),
        ttft_ms=message.ttft_ms if message.HasField("ttft_ms") else None,
        total_ms=message.total_ms,
        trace_id=message.trace_id,
        budget_ms=message.budget_ms,
        timings=timings,
        decisions=tuple(map(_decision, message.decisions)),
        cost_usd=message.cost_usd,
        transcript=message.transcript,
        sights=sights(message.sights).pictures,
        tool_calls=tuple(ToolCall(call.id, call.name, call.arguments) for call in message.tool_calls),
        reasoning=message.reasoning,
        logprobs=_logprobs(message.logprobs),
        prompt=_prompt(message.prompt) if message.HasField("prompt") else None,
        usable_ms=message.usable_ms if message.HasField("usable_ms") else None,
        citations=tuple(map(citations, message.citations)),
        patches=tuple(map(patch, message.patches)),
        changes=tuple(map(_change, message.changes)),
        cut=_change(message.cut) if message.HasField("cut") else None,
    )


def _change(message: pb.Change) -> Change:
    return Change(message.what, message.before, message.after, message.by)


def _prompt(message: pb.PromptReport) -> PromptReport:
    return PromptReport(
        message.tokens_before,
        message.tokens_after,
        message.estimated,
        message.dropped_turns,
        message.summary,
        tuple(message.diet),
        message.system,
    )


def _logprobs(messages: Iterable[chat_pb2.TokenLogprob]) -> tuple[TokenLogprob, ...]:
    return tuple(TokenLogprob(each.token, each.bytes, each.logprob, _logprobs(each.top)) for each in messages)


def _decision(message: pb.Decision) -> Decision:
    return Decision(message.policy, message.action, message.subject, message.reason, message.at_ms)


def batch_error(message: pb.BatchError) -> HedgerowError:
    """The typed error of an item of a batch, or of a turn."""
    return error_for(
        message.code,
        message.message,
        reason=message.reason,
        metadata=message.metadata,
        retry_delay_s=message.retry_delay.ToNanoseconds() / 1e9 if message.HasField("retry_delay") else None,
        trace_id=message.trace_id or None,
    )


def _usage(message: chat_pb2.Usage) -> Usage:
    return Usage(
        prompt_tokens=message.prompt_tokens,
        completion_tokens=message.completion_tokens,
        cached_prompt_tokens=message.cached_prompt_tokens,
        drafted_tokens=message.drafted_tokens,
        accepted_tokens=message.accepted_tokens,
        reasoning_tokens=message.reasoning_tokens,
        cache_write_tokens=message.cache_write_tokens,
    )


def _cache(message: pb.CacheReport) -> CacheReport:
    similarity = message.similarity if message.HasField("similarity") else None
    verdict = _VERDICT.get(message.verdict, "unspecified")
    return CacheReport(verdict, similarity, message.key, message.reason, message.category, message.stale)
