"""The report of an answer, as JSON beside it and, in short, as headers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.answer.metrics import OUTCOMES, REASONS, VERDICTS
from services.gateway.decisions import Changed
from services.gateway.http.errors import Headers
from services.runtime.aside import size_of

_WORDS = frozenset({"delta", "tool_call", "reasoning", "patch"})  # kinds of events
_SHORT: tuple[tuple[bytes, Callable[[pb.Final], str]], ...] = (
    (b"x-hedgerow-model", lambda final: final.model),
    (b"x-hedgerow-cache", lambda final: VERDICTS[final.cache.verdict]),
    (b"x-hedgerow-cache-reason", lambda final: final.cache.reason),
    (b"x-hedgerow-degraded", lambda final: ",".join(final.degraded)),
    (b"x-hedgerow-finish-reason", lambda final: REASONS[final.finish_reason]),
    (b"x-hedgerow-cut", lambda final: f"{final.cut.what}; by={final.cut.by}" if final.HasField("cut") else ""),
    (b"x-hedgerow-omitted", lambda final: _omitted(final)),
    (b"x-hedgerow-ttft-ms", lambda final: f"{final.ttft_ms:.1f}" if final.HasField("ttft_ms") else ""),
    (b"x-hedgerow-total-ms", lambda final: f"{final.total_ms:.1f}"),
    (b"x-hedgerow-cost-usd", lambda final: f"{final.cost_usd:.8f}"),
)


def _omitted(final: pb.Final) -> str:
    return ", ".join(change.before for change in final.changes if change.what == Changed.FIELD_OMITTED)


def size_of_answer(final: pb.Final) -> int:
    """The size of an answer's objects, for `aside`: it may have a hundred thousand log-probabilities."""
    alternatives = len(final.logprobs[0].top) if final.logprobs else 0
    return size_of(len(final.logprobs) * (1 + alternatives) + len(final.tool_calls))


def report(final: pb.Final) -> dict[str, Any]:
    """The `hedgerow` object of an answer."""
    fields: dict[str, Any] = {
        "trace_id": final.trace_id,
        "model": final.model,
        "finish_reason": REASONS[final.finish_reason],
        "budget_ms": round(final.budget_ms, 3),
        "ttft_ms": round(final.ttft_ms, 3) if final.HasField("ttft_ms") else None,
        "usable_ms": round(final.usable_ms, 3) if final.HasField("usable_ms") else None,
        "total_ms": round(final.total_ms, 3),
        "cost_usd": final.cost_usd,
        "prompt_tokens": final.usage.prompt_tokens,
        "completion_tokens": final.usage.completion_tokens,
        "cache": _cache(final.cache),
        "degraded": list(final.degraded),
        "stages": [_stage(stage) for stage in final.stages],
        "decisions": [_decision(made) for made in final.decisions],
    }
    if final.changes:
        fields["changes"] = [_change(each) for each in final.changes]
    if final.HasField("cut"):
        fields["cut"] = _change(final.cut)
    if final.HasField("prompt"):
        fields["prompt"] = _prompt(final.prompt)
    if final.citations:
        fields["citations"] = [_citations(each) for each in final.citations]
    if final.patches:
        fields["patches"] = [_patch(each) for each in final.patches]
    if final.transcript:
        fields["transcript"] = final.transcript
    if final.HasField("sights"):
        fields["sights"] = [
            [{"name": label.name, "score": round(label.score, 4), "index": label.index} for label in picture.labels]
            for picture in final.sights.pictures
        ]
    return fields


def found(event: pb.Event) -> dict[str, Any] | None:
    """The part of the report in an event before the end: the sources of a result, or a late result."""
    match event.WhichOneof("kind"):
        case "citations":
            return {"citations": [_citations(event.citations)]}
        case "patch":
            return {"patches": [_patch(event.patch)]}
    return None


def adds_words(event: pb.Event) -> bool:
    """Whether an event has words that a provider's relayed answer lacks."""
    return event.WhichOneof("kind") in _WORDS and not event.in_relayed


def short(final: pb.Final) -> Headers:
    """The parts of it that fit into headers."""
    return [(name, value.encode()) for name, word in _SHORT if (value := word(final))]


def _cache(report: pb.CacheReport) -> dict[str, Any]:
    fields: dict[str, Any] = {"verdict": VERDICTS[report.verdict]}
    if report.HasField("similarity"):
        fields["similarity"] = round(report.similarity, 4)
    for name in ("key", "reason", "category"):
        if word := getattr(report, name):
            fields[name] = word
    if report.stale:
        fields["stale"] = True
    return fields


def _citations(found: pb.Citations) -> dict[str, Any]:
    sources = [
        {"source": each.source, "title": each.title, "text": each.text, "score": round(each.score, 4)}
        for each in found.citations
    ]
    return {"tool": found.tool, "citations": sources}


def _patch(patch: pb.Patch) -> dict[str, Any]:
    return {"stage": patch.stage, "text": patch.text}


def _change(change: pb.Change) -> dict[str, Any]:
    values = {name: value for name, value in (("from", change.before), ("to", change.after)) if value}
    return {"what": change.what, **values, "by": change.by}


def _prompt(report: pb.PromptReport) -> dict[str, Any]:
    return {
        "tokens_before": report.tokens_before,
        "tokens_after": report.tokens_after,
        "estimated": report.estimated,
        "dropped_turns": report.dropped_turns,
        "summary": report.summary,
        "diet": list(report.diet),
        "system": report.system,
    }


def _stage(stage: pb.Stage) -> dict[str, Any]:
    return {
        "name": stage.name,
        "budget_ms": round(stage.budget_ms, 3),
        "spent_ms": round(stage.spent_ms, 3),
        "started_ms": round(stage.started_ms, 3),
        "outcome": OUTCOMES[stage.outcome],
        "detail": stage.detail,
    }


def _decision(made: pb.Decision) -> dict[str, Any]:
    return {
        "policy": made.policy,
        "action": made.action,
        "subject": made.subject,
        "reason": made.reason,
        "at_ms": round(made.at_ms, 3),
    }
